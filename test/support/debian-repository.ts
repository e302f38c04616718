/** A small package source of a test's own, and a PATH on which apt knows only that one. Real apt, real packages, no network. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmod, copyFile, cp, mkdir, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { isOn } from '../../src/redis/server-sources.js';
import type { ServerBinary } from '../../src/redis/server-version.js';

const run = promisify(execFile);
const SYSTEM_PATH = process.env.PATH ?? '';
/** Every system has these; a server that lacks them lacks everything. */
const BASIC = /^(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)|ld-linux.*)\.so/;

export const hasApt = async (): Promise<boolean> =>
  (await isOn(SYSTEM_PATH, 'apt-get')) && (await isOn(SYSTEM_PATH, 'dpkg-deb'));

export interface Library {
  readonly soname: string;
  readonly file: string;
}

export interface Repository {
  /** A PATH without a Redis: apt, dpkg and ldd only. */
  readonly path: string;
  /** Libraries that `ldd` says are missing until the server is given the repository's own. */
  readonly libraries: readonly Library[];
  /** Offers the server as this version, in the place of what was offered before. */
  offer(version: string): Promise<void>;
  /** What the system's own package lists know becomes what is offered now. */
  readLists(): Promise<void>;
  /** Puts a program on the PATH in the place of the one that is there. */
  program(name: string, script: string): Promise<void>;
}

/** @param server is packed as it is, and so are two of its libraries */
export async function makeRepository(base: string, server: ServerBinary): Promise<Repository> {
  const [bin, pool, lists, config] = ['bin', 'pool', 'lists', 'apt.conf'].map((name) => join(base, name)) as [
    string,
    string,
    string,
    string,
  ];
  for (const folder of [bin, pool, join(lists, 'partial')]) await mkdir(folder, { recursive: true });
  await writeFile(join(base, 'sources.list'), `deb [trusted=yes] file:${pool} ./\n`);
  const settings = [
    `Dir::Etc::SourceList "${join(base, 'sources.list')}";`,
    'Dir::Etc::SourceParts "/dev/null";',
    `Dir::State::lists "${lists}";`,
    // Nothing is installed, whatever this machine has.
    `Dir::State::status "${join(base, 'status')}";`,
    // As an image for containers has it: a hook that clears away what an update fetched.
    `APT::Update::Post-Invoke { "touch ${join(base, 'hook-ran')}"; };`,
  ];
  await writeFile(join(base, 'status'), '');
  await writeFile(config, settings.join('\n'));
  const libraries = await librariesToOffer(server);

  const program = async (name: string, script: string) => {
    const file = join(bin, name);
    await rm(file, { force: true });
    await writeFile(file, `#!/bin/sh\n${script}\n`);
    await chmod(file, 0o755);
  };
  for (const name of ['apt-get', 'apt-cache']) {
    await program(name, `APT_CONFIG='${config}' exec ${await find(name)} "$@"`);
  }
  const pretended = libraries.map(({ soname }) => soname.replaceAll('.', '\\.')).join('|');
  await program(
    'ldd',
    `${await find('ldd')} "$@" | ${await find('sed')} -E '/^\\s*(${pretended}) /{/ => [^ ]*\\/libraries\\//!s/ => .*/ => not found/}'`,
  );
  for (const name of ['dpkg', 'dpkg-deb', 'tar', 'rm', 'sh', 'sleep', 'touch']) {
    await symlink(await find(name), join(bin, name));
  }

  return {
    path: bin,
    libraries,
    program,
    async offer(version) {
      await rm(pool, { recursive: true });
      await mkdir(pool);
      const [odd, ...named] = libraries;
      if (odd === undefined) throw new Error('the server needs no library');
      // As Debian 12 has it: the package of the server is a link to the program in the package of its tools.
      await pack(pool, 'redis-server', version, 'fake-redis', ['fake-redis-tools'], async (root) => {
        await mkdir(join(root, 'usr/bin'), { recursive: true });
        await symlink('redis-check-rdb', join(root, 'usr/bin/redis-server'));
      });
      const needs = [...named.map(({ soname }) => packageOf(soname)), 'libz-unrelated', 'odd-data', 'libz-odd-name'];
      await pack(pool, 'fake-redis-tools', version, 'fake-redis', needs, async (root) => {
        await mkdir(join(root, 'usr/bin'), { recursive: true });
        await copyFile(await realpath(server.file), join(root, 'usr/bin/redis-check-rdb'));
      });
      const library = (one: Library) => async (root: string) => {
        await mkdir(join(root, 'usr/lib/some-triplet'), { recursive: true });
        await copyFile(await realpath(one.file), join(root, 'usr/lib/some-triplet', one.soname));
      };
      const note = async (root: string) => {
        await mkdir(join(root, 'usr/share/doc'), { recursive: true });
        await writeFile(join(root, 'usr/share/doc/note'), 'nothing of use');
      };
      for (const one of named) {
        await pack(pool, packageOf(one.soname), '1.0', `fake-${one.soname}`.toLowerCase(), [], library(one));
      }
      await pack(pool, 'libz-unrelated', '1.0', 'fake-unrelated', [], note);
      await pack(pool, 'odd-data', '1.0', 'fake-data', [], note);
      await pack(pool, 'libz-odd-name', '1.0', 'fake-odd', [], library(odd));
    },
    async readLists() {
      await run(join(bin, 'apt-get'), ['update', '-q', '-o', 'APT::Sandbox::User=root', '-o', `Dir::Cache=${base}`]);
      await rm(join(base, 'hook-ran'), { force: true });
    },
  };
}

const packageOf = (soname: string) => soname.toLowerCase().replace(/(\d?)\.so\./, (_, d) => (d === '' ? '' : `${d}-`));

/** Two at least, and all that this machine really lacks. */
async function librariesToOffer(server: ServerBinary): Promise<Library[]> {
  const env = { PATH: SYSTEM_PATH, ...(server.libraryPath !== undefined && { LD_LIBRARY_PATH: server.libraryPath }) };
  const { stdout } = await run('ldd', [server.file], { env });
  const found = [...stdout.matchAll(/^\s*(\S+) => (\/\S+)/gm)].map(([, soname = '', file = '']) => ({ soname, file }));
  const fetched = (file: string) => (server.libraryPath ?? '').split(':').includes(dirname(file));
  const lacking = found.filter(({ file }) => fetched(file));
  const others = found.filter(({ soname, file }) => !BASIC.test(soname) && !fetched(file));
  return [...lacking, ...others].slice(0, Math.max(2, lacking.length));
}

async function pack(
  pool: string,
  name: string,
  version: string,
  source: string,
  depends: readonly string[],
  fill: (root: string) => Promise<void>,
): Promise<void> {
  const root = join(pool, `${name}.tree`);
  await mkdir(join(root, 'DEBIAN'), { recursive: true });
  const architecture = (await run('dpkg', ['--print-architecture'])).stdout.trim();
  const control = [
    `Package: ${name}`,
    `Source: ${source}`,
    `Version: ${version}`,
    `Architecture: ${architecture}`,
    'Maintainer: Nobody <nobody@example.org>',
    ...(depends.length > 0 ? [`Depends: ${depends.join(', ')}`] : []),
    'Description: for a test',
  ].join('\n');
  await writeFile(join(root, 'DEBIAN/control'), `${control}\n`);
  await fill(root);
  const file = join(pool, `${name}_${version.replace(':', '%3a')}.deb`);
  await run('dpkg-deb', ['--root-owner-group', '-Znone', '-b', root, file]);
  await rm(root, { recursive: true });
  const bytes = await readFile(file);
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const record = `${control}\nFilename: ./${basename(file)}\nSize: ${bytes.length}\nSHA256: ${sha256}\n\n`;
  await writeFile(join(pool, 'Packages'), record, { flag: 'a' });
}

async function find(name: string): Promise<string> {
  return (await run('/bin/sh', ['-c', `command -v ${name}`], { env: { PATH: SYSTEM_PATH } })).stdout.trim();
}

/** A folder like one that was fetched, made of a server that is there. */
export async function plant(cacheDir: string, server: ServerBinary, version: string): Promise<string> {
  const folder = join(cacheDir, `redis-${process.arch}-${version}`);
  await mkdir(dirname(join(folder, 'usr/bin/redis-server')), { recursive: true });
  await cp(await realpath(server.file), join(folder, 'usr/bin/redis-server'));
  const libraries = server.libraryPath?.split(':') ?? [];
  for (const [n, library] of libraries.entries())
    await cp(library, join(folder, `libraries/${n}`), { recursive: true });
  const said = { file: 'usr/bin/redis-server', libraries: libraries.map((_, n) => `libraries/${n}`) };
  await writeFile(join(folder, 'server.json'), JSON.stringify(said));
  return folder;
}
