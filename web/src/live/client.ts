// SPDX-License-Identifier: Apache-2.0
// The C++ core as a service: one worker, started when the page has drawn itself.

import type { Estimate, Page, Status, Term } from '../data';
import driver from './driver.js?raw';

export interface Point {
  status: Status;
  reason: string;
  layout: string;
  techniques: string;
  wall: string | null;
  estimate: Estimate | null;
  terms?: Term[];
  error?: { message: string; where: string; hint: string };
}

export interface Answer {
  points?: Point[];
  error?: { message: string; where: string; hint: string };
  milliseconds: number;
}

interface Message {
  id: number;
  answer?: string;
  failure?: string;
  milliseconds?: number;
}

const text = (id: string) => document.getElementById(id)?.textContent ?? '';

export class Evaluator {
  private waiting = new Map<number, (message: Message) => void>();
  private next = 0;

  private constructor(private worker: Worker) {
    worker.onmessage = (event: MessageEvent<Message>) => {
      this.waiting.get(event.data.id)?.(event.data);
      this.waiting.delete(event.data.id);
    };
  }

  // Null where this build has no WebAssembly or the browser refuses it: the page then shows what it was given.
  static async start(page: Page): Promise<Evaluator | null> {
    const program = text('wasm').trim();
    if (!program) return null;
    const url = URL.createObjectURL(new Blob([text('wasm-loader'), '\n', driver], { type: 'text/javascript' }));
    try {
      const evaluator = new Evaluator(new Worker(url));
      await evaluator.post({ program });
      const answer = await evaluator.ask({ profile: page.inputs.profile, job: page.inputs.job, points: [{ set: [] }] }); // and warm
      if (answer.error) throw new Error(answer.error.message);
      return evaluator;
    } finally {
      URL.revokeObjectURL(url);
    }
  }

  private post(body: object): Promise<Message> {
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.worker.onerror = (event) => reject(new Error(event.message));
      this.waiting.set(id, (message) => (message.failure ? reject(new Error(message.failure)) : resolve(message)));
      this.worker.postMessage({ id, ...body });
    });
  }

  async ask(request: object): Promise<Answer> {
    const message = await this.post({ request: JSON.stringify(request) });
    return { ...(JSON.parse(message.answer!) as Answer), milliseconds: message.milliseconds ?? 0 };
  }
}
