/** Real refusals of the system, as sentences. */
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { faultOf } from '../../src/cli/fault.js';

test('a taken port: the sentence names the address and the way out, the status is 1', async () => {
  const first = createServer().listen(0, '127.0.0.1');
  await once(first, 'listening');
  const { port } = first.address() as AddressInfo;
  const error = await once(createServer().listen(port, '127.0.0.1'), 'listening').catch((reason: unknown) => reason);
  first.close();
  expect(faultOf(error)).toMatchObject({
    status: 1,
    message:
      `The address 127.0.0.1:${port} is taken by another program; stop that one, ` +
      'or choose another port with --port or --ops-port (0 means any).',
  });
});

test('an address of another machine, and a path through a file', async () => {
  const server = createServer().listen(1, '192.0.2.1');
  const error = await once(server, 'listening').catch((reason: unknown) => reason);
  expect(faultOf(error)?.message).toMatch(/^This machine does not have the address of 192\.0\.2\.1:1;/);
  const folder = await mkdtemp(join(tmpdir(), 'homing-s-'));
  await writeFile(join(folder, 'file'), '');
  const path = join(folder, 'file', 'below');
  const through = await writeFile(path, '').catch((reason: unknown) => reason);
  expect(faultOf(through)?.message).toBe(`${path} can not be used (open): a part of its path is a file.`);
  await rm(folder, { recursive: true });
});

test('any other keeps its own words; a bug of ours is no fault', async () => {
  const missing = await readFile('/does/not/exist').catch((reason: unknown) => reason);
  expect(faultOf(missing)?.message).toMatch(/^ENOENT: no such file/);
  expect(faultOf(new TypeError('x is undefined'))).toBeUndefined();
});
