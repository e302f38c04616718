/** Builds the web app into `dist/web`, with a compressed variant beside each file; prints what a first load weighs. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

const OUT_DIR = fileURLToPath(new URL('../../dist/web/', import.meta.url));
const COMPRESSED = /\.(html|js|css|svg|webmanifest)$/;

function compress(): Plugin {
  return {
    name: 'compress',
    apply: 'build',
    closeBundle() {
      let gzipBytes = 0;
      for (const name of readdirSync(OUT_DIR, { recursive: true, encoding: 'utf8' })) {
        if (!COMPRESSED.test(name)) continue;
        const path = join(OUT_DIR, name);
        const bytes = readFileSync(path);
        const gzipped = gzipSync(bytes, { level: 9 });
        const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
        writeFileSync(`${path}.gz`, gzipped);
        writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params }));
        gzipBytes += gzipped.length;
      }
      console.log(`the web app weighs ${(gzipBytes / 1000).toFixed(1)} kB (gzip)`);
    },
  };
}

export default defineConfig({
  root: fileURLToPath(new URL('.', import.meta.url)),
  // Relative, so that it also works below a path of a proxy.
  base: './',
  build: {
    outDir: OUT_DIR,
    emptyOutDir: true,
    target: 'es2022',
    // An inlined file would need `data:` in the policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  plugins: [compress()],
});
