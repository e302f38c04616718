/** What is installed: from the registry alone, with digests, under licences that let the product be used and passed on. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

interface Locked {
  readonly version?: string;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly license?: string;
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly hasInstallScript?: boolean;
}

const read = (name: string) => JSON.parse(readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8'));
const lock = read('package-lock.json') as { readonly packages: Readonly<Record<string, Locked>> };
const installed = Object.entries(lock.packages).filter(([path]) => path !== '');

const PERMISSIVE = ['MIT', 'ISC', '0BSD', 'BSD-2-Clause', 'BSD-3-Clause', 'Apache-2.0', 'BlueOak-1.0.0'];
/** Tools of the build and the tests, which nobody gets with the product. */
const FOR_TOOLS = [
  ...PERMISSIVE,
  'MIT OR Apache-2.0',
  'MPL-2.0',
  'LGPL-3.0-only',
  'CC0-1.0',
  'Python-2.0',
  'CC-BY-4.0',
];
/** Native parts that are optional; `npm ci --ignore-scripts` in the image leaves them out. */
const WITH_SCRIPTS = ['bufferutil', 'msgpackr-extract', 'utf-8-validate'];

describe('what is installed', () => {
  it('has a digest each and comes from the registry', () => {
    expect(installed.length).toBeGreaterThan(100);
    const loose = installed.filter(([, { integrity, resolved }]) => {
      const fromElsewhere = resolved !== undefined && !/^https:\/\/[^/]+\/.+\.tgz$/.test(resolved);
      return fromElsewhere || !/^sha512-/.test(integrity ?? '');
    });
    expect(loose.map(([path]) => path)).toEqual([]);
  });

  it('may be used and passed on: the product under permissive licences alone', () => {
    const refused = installed.filter(
      ([, { license = 'none', dev }]) => !(dev ? FOR_TOOLS : PERMISSIVE).includes(license),
    );
    expect(refused.map(([path, { license }]) => `${path}: ${license}`)).toEqual([]);
    // Not all of what is looked at is a tool.
    expect(installed.filter(([, { dev }]) => !dev).length).toBeGreaterThan(50);
  });

  it('runs no script at installation, but for optional native parts', () => {
    const names = installed
      .filter(([, { hasInstallScript, dev }]) => hasInstallScript && !dev)
      .map(([path]) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length));
    expect([...new Set(names)].sort()).toEqual(WITH_SCRIPTS);
  });

  it('is asked for by a version of the registry, never by an address', () => {
    const { dependencies } = read('package.json') as { readonly dependencies: Readonly<Record<string, string>> };
    for (const range of Object.values(dependencies)) expect(range).toMatch(/^[\^~]?\d+\.\d+\.\d+$/);
  });
});
