/**
 * Puts the client programs and `homing up` into a few files, so that they start in half the time: what they take is mostly
 * the reading of a hundred small modules. Runs after tsc, on what it made. Nodes and workers stay as tsc made them.
 */
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const DIST = fileURLToPath(new URL('../../dist/cli/', import.meta.url));
const MAIN = `${DIST}main.js`;

/** Programs that load nodes and workers as they are, and what they share with them, which must exist only once. */
const SERVER_PROGRAMS = ['gateway.js', 'worker.js', 'token.js', 'doctor.js'];
const SERVER_PARTS = ['settings.js', 'serve.js', 'examination.js', 'compose.js', 'tokens.js', 'token.js'];
/** Errors are told apart by their class. */
const SHARED = ['errors.js', 'fault.js'];

export default defineConfig({
  build: {
    ssr: MAIN,
    outDir: DIST,
    emptyOutDir: false,
    copyPublicDir: false,
    target: 'node20',
    minify: false,
    sourcemap: false,
    rolldownOptions: {
      external(id, importer) {
        if (id.startsWith('node:')) return true;
        const file = basename(id);
        if (SHARED.includes(file)) return true;
        const from = importer === undefined ? '' : basename(importer);
        return SERVER_PROGRAMS.includes(from) && SERVER_PARTS.includes(file) && file !== from;
      },
      output: { format: 'es', entryFileNames: 'main.js', chunkFileNames: 'bundled-[name].js' },
    },
  },
  ssr: { noExternal: true, target: 'node' },
  plugins: [
    {
      name: 'runnable',
      closeBundle() {
        const text = readFileSync(MAIN, 'utf8');
        if (!text.startsWith('#!')) writeFileSync(MAIN, `#!/usr/bin/env node\n${text}`);
        chmodSync(MAIN, 0o755);
      },
    },
  ],
});
