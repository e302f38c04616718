/** Imports go downwards only, each outside library has one home, and the pure layers stay pure. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const SRC = fileURLToPath(new URL('../../src/', import.meta.url));

/** A layer may import from itself and from layers below it; layers of one line are siblings and do not see each other. */
const LAYERS: readonly (readonly string[])[] = [
  ['cli', 'web'],
  ['compose'],
  ['ops'],
  ['gateway', 'worker', 'reconciler', 'webhook', 'client'],
  ['queue'],
  ['redis'],
  ['domain'],
  ['protocol'],
];
/** May be used by all, and by themselves use nothing above `protocol`. */
const SHARED = ['config', 'errors', 'lifecycle'];
/** The only layers that may import a package; `node:` and what is not listed is judged below. */
const HOMES: Readonly<Record<string, readonly string[]>> = {
  ioredis: ['redis'],
  bullmq: ['queue'],
  // Node 20 has no WebSocket of its own, so the client's entry for Node brings one; its entry for browsers must not.
  ws: ['gateway', 'client/node'],
  fastify: ['gateway'],
  '@fastify/static': ['gateway'],
  preact: ['web'],
  '@xterm/xterm': ['web'],
  vite: ['web', 'client/vite.config', 'cli/vite.config'],
  pino: ['ops'],
  'prom-client': ['ops'],
  '@opentelemetry/api': ['ops'],
  '@opentelemetry/exporter-trace-otlp-http': ['ops'],
  '@opentelemetry/resources': ['ops'],
  '@opentelemetry/sdk-trace-base': ['ops'],
  '@bull-board/api': ['ops'],
  '@bull-board/fastify': ['ops'],
  commander: ['cli'],
};
/** Parts that see Redis and the queue through the ports alone. */
const PORTS_ONLY = ['gateway', 'worker', 'reconciler', 'webhook'];
const PURE = ['domain', 'protocol'];

interface Import {
  readonly file: string;
  readonly layer: string;
  readonly target: string;
  readonly typeOnly: boolean;
}

const layerOf = (path: string): string => (path.split('/')[0] ?? '').replace(/\.(ts|js)$/, '');
const rank = (layer: string): number => LAYERS.findIndex((line) => line.includes(layer));

const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((file) => /\.tsx?$/.test(file));

/** Every static and dynamic import; comments are left out first. */
function importsIn(file: string, source: string): Import[] {
  const code = source.replace(/\/\*[\s\S]*?\*\//g, '').replace(/^\s*\/\/.*$/gm, '');
  const found = [
    ...code.matchAll(/^\s*(?:import|export)\s+(type\s+)?(?:[\w*{][\s\S]*?\sfrom\s+)?['"]([^'"]+)['"]/gm),
    ...code.matchAll(/(?<!typeof )\bimport()\(\s*['"]([^'"]+)['"]\s*\)/g),
  ];
  return found.map(([, typeOnly, target = '']) => ({
    file,
    layer: layerOf(file),
    target: target.startsWith('.') ? relative(SRC, join(SRC, dirname(file), target)) : target,
    typeOnly: typeOnly !== undefined && typeOnly !== '',
  }));
}

/** What is wrong with one import, as a sentence; undefined when nothing is. */
function faultOf({ file, layer, target, typeOnly }: Import): string | undefined {
  const says = (why: string) => `${file} imports ${target}: ${why}`;
  if (target.startsWith('node:')) {
    return PURE.includes(layer) ? says('pure layers use no part of Node') : undefined;
  }
  const isOwn = files.includes(target.replace(/\.js$/, '.ts')) || files.includes(target.replace(/\.js$/, '.tsx'));
  if (!isOwn) {
    const name = target.startsWith('@') ? target.split('/').slice(0, 2).join('/') : (target.split('/')[0] ?? '');
    if (PURE.includes(layer) && name !== 'zod') return says('pure layers use no package but zod');
    const homes = HOMES[name];
    return homes !== undefined && !homes.some((home) => home === layer || file === `${home}.ts`)
      ? says(`only ${homes.join(', ')} may`)
      : undefined;
  }
  const other = layerOf(target);
  if (other === layer || SHARED.includes(other)) return undefined;
  if (layer === 'index') return undefined;
  if (SHARED.includes(layer)) return other === 'protocol' ? undefined : says('shared files stand below everything');
  if (PORTS_ONLY.includes(layer) && (other === 'redis' || other === 'queue')) return says('it must use domain/ports');
  // A type costs nothing at run time, but it is knowledge all the same: directions hold for types too.
  if (rank(other) < 0 || rank(layer) < 0) return says(`it is in no layer${typeOnly ? ' (types too)' : ''}`);
  return rank(other) > rank(layer) ? undefined : says('imports go downwards, and siblings do not import each other');
}

describe('imports', () => {
  const all = files.flatMap((file) => importsIn(file, readFileSync(join(SRC, file), 'utf8')));

  it('go downwards, keep siblings apart and leave each library at its home', () => {
    expect(all.length).toBeGreaterThan(20);
    expect(all.map(faultOf).filter((fault) => fault !== undefined)).toEqual([]);
  });

  it('what is only for traces is loaded where they are asked for, and nowhere else', () => {
    const using = all.filter(({ target }) => target.startsWith('@opentelemetry/')).map(({ file }) => file);
    expect(new Set(using)).toEqual(new Set(['ops/tracing.ts']));
    const from = files.filter((file) => readFileSync(join(SRC, file), 'utf8').includes("'./tracing.js'"));
    expect(from).toEqual(['ops/traces.ts']);
    expect(readFileSync(join(SRC, 'ops/traces.ts'), 'utf8')).toContain("await import('./tracing.js')");
  });

  it('process.env, process.argv and process.exit appear in cli/ only', () => {
    const offenders = files.filter(
      (file) => layerOf(file) !== 'cli' && /\bprocess\.(env|argv|exit)\b/.test(withoutComments(file)),
    );
    expect(offenders).toEqual([]);
  });

  it('pure layers ask no clock and no chance', () => {
    const impure = /\b(Date\.now|new Date\(\)|performance\.now|Math\.random|setTimeout|setInterval|crypto\.)/;
    expect(files.filter((file) => PURE.includes(layerOf(file)) && impure.test(withoutComments(file)))).toEqual([]);
  });

  it('[IS2] twin: an import upwards, across, past the ports or of a foreign library is noticed', () => {
    const bad: [string, string][] = [
      ['domain/ports.ts', `import { createKeys } from '../redis/keys.js';`],
      ['domain/ports.ts', `import { readFileSync } from 'node:fs';`],
      ['protocol/ids.ts', `import type { Redis } from 'ioredis';`],
      ['gateway/x.ts', `import { createKeys } from '../redis/keys.js';`],
      ['worker/x.ts', `import type { Keys } from '../redis/keys.js';`],
      ['redis/keys.ts', `import { Queue } from 'bullmq';`],
      ['client/session.ts', `import WebSocket from 'ws';`],
      ['redis/keys.ts', `const x = await import('bullmq');`],
    ];
    for (const [file, source] of bad) {
      expect(importsIn(file, source).map(faultOf), source).toEqual([expect.any(String)]);
    }
  });
});

function withoutComments(file: string): string {
  return readFileSync(join(SRC, file), 'utf8')
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/^\s*\/\/.*$/gm, '')
    .replace(/\s\/\/ .*$/gm, '');
}
