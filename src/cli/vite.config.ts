/**
 * Puts all programs into a few files, with the packages they use, so that they start in half the time: what they take is
 * mostly the reading of a thousand small modules. Runs after tsc, on what it made.
 */
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const DIST = fileURLToPath(new URL('../../dist/', import.meta.url));
const CLI = `${DIST}cli/`;
const MAIN = `${CLI}main.js`;

/** Errors are told apart by their class, so these exist once, also beside the modules that tsc made. */
const SHARED = ['errors.js', 'cli/fault.js'];
/** Native, or looks for its own files beside itself. */
const PACKAGES_AS_THEY_ARE = ['@bull-board/', '@lydell/', '@opentelemetry/'];

export default defineConfig({
  build: {
    ssr: MAIN,
    outDir: CLI,
    emptyOutDir: false,
    copyPublicDir: false,
    target: 'node20',
    minify: false,
    sourcemap: false,
    rolldownOptions: {
      external: (id) =>
        id.startsWith('node:') ||
        PACKAGES_AS_THEY_ARE.some((name) => id.startsWith(name)) ||
        SHARED.some((file) => id === `${DIST}${file}`),
      output: { format: 'es', entryFileNames: 'main.js', chunkFileNames: 'bundled-[name].js' },
    },
  },
  ssr: { noExternal: true, external: ['@bull-board/api', '@bull-board/fastify'], target: 'node' },
  plugins: [
    {
      name: 'where-it-was',
      /** A module finds files beside itself, so in a bundle it still says where tsc had put it. */
      transform(code, id) {
        if (!id.startsWith(DIST) || !code.includes('import.meta.url')) return null;
        const from = relative(CLI, id).split(sep).join('/');
        return code.replaceAll('import.meta.url', `new URL(${JSON.stringify(from)}, import.meta.url).href`);
      },
    },
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
