/**
 * Builds the browser's client into one file, `dist/client/browser.js`, for pages without a bundler; prints what it weighs.
 * Fails when anything of Node, or a package, would have to come with it.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

const OUT_DIR = fileURLToPath(new URL('../../dist/client/', import.meta.url));
const FILE = 'browser.js';

function weigh(): Plugin {
  return {
    name: 'weigh',
    apply: 'build',
    generateBundle(_options, bundle) {
      const chunks = Object.values(bundle).filter((part) => part.type === 'chunk');
      const imports = chunks.flatMap((chunk) => [...chunk.imports, ...chunk.dynamicImports]);
      const foreign = chunks.flatMap((chunk) => Object.keys(chunk.modules)).filter((id) => id.includes('node_modules'));
      if (imports.length > 0 || foreign.length > 0) {
        this.error(`the browser client must stand alone, and needs ${[...imports, ...foreign].join(', ')}`);
      }
    },
    closeBundle() {
      const bytes = readFileSync(join(OUT_DIR, FILE));
      const gzip = gzipSync(bytes, { level: 9 }).length;
      this.info(`the client weighs ${(bytes.length / 1000).toFixed(1)} kB (${(gzip / 1000).toFixed(1)} kB gzip)`);
    },
  };
}

export default defineConfig({
  build: {
    outDir: OUT_DIR,
    emptyOutDir: false,
    copyPublicDir: false,
    target: 'es2022',
    minify: true,
    reportCompressedSize: false,
    lib: { entry: fileURLToPath(new URL('./index.ts', import.meta.url)), formats: ['es'], fileName: () => FILE },
  },
  plugins: [weigh()],
});
