// SPDX-License-Identifier: Apache-2.0
// Runs in the worker, after emscripten's loader (createEvaluator). First message: the compressed program; then requests.

let evaluator;

async function unpack(base64) {
  const packed = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function evaluate(request) {
  const size = evaluator.lengthBytesUTF8(request) + 1;
  const at = evaluator._malloc(size);
  evaluator.stringToUTF8(request, at, size);
  const answer = evaluator.UTF8ToString(evaluator._evaluate(at));
  evaluator._free(at);
  return answer;
}

onmessage = async (event) => {
  const { id, program, request } = event.data;
  try {
    if (program !== undefined) {
      evaluator = await createEvaluator({ wasmBinary: await unpack(program) });
      postMessage({ id, answer: '{}' });
      return;
    }
    const begin = performance.now();
    const answer = evaluate(request);
    postMessage({ id, answer, milliseconds: performance.now() - begin });
  } catch (error) {
    postMessage({ id, failure: String(error) });
  }
};
