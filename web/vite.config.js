// SPDX-License-Identifier: Apache-2.0
import { defineConfig } from 'vite';
import { viteSingleFile } from 'vite-plugin-singlefile';

export default defineConfig({
  plugins: [viteSingleFile({ removeViteModuleLoader: true })],
  build: { target: 'es2022', outDir: process.env.TRIFOLD_PAGE_OUT ?? '../build/web', emptyOutDir: true, reportCompressedSize: false },
});
