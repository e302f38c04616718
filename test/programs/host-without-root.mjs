// Opens the host of a worker as whoever runs this, enters each place once, and tells what came of it as JSON.
// argv: the folder of the build, a data folder, ways that are not to be tried.
import { closeSync } from 'node:fs';

const [dist, dataDir, ...without] = process.argv.slice(2);
const { openHost } = await import(`${dist}/worker/host.js`);
const { createPipePool } = await import(`${dist}/worker/pipes.js`);
const { startProcess } = await import(`${dist}/worker/process.js`);
const silent = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
const path = process.env.PATH;
const host = await openHost({ id: 'test', floor: 'auto', without, dataDir, keepMs: 1_000, path, log: silent });
const pipes = createPipePool();
const ends = [];
for (const profile of [undefined, ...host.containment.profiles]) {
  const place = await host.containment.place(profile, '/');
  const spec = { script: 'sleep 600 & setsid sleep 600 & kill -9 $$', streams: 'merged' };
  const started = await startProcess(
    { spec, cwd: '/', env: { PATH: path }, place, mark: 'NO=MARK', enterGroup: [], limits: [] },
    pipes,
  );
  if (started.type !== 'started') throw new Error(started.error);
  const { exited, outputs, tree } = started.process;
  const { code, signal } = await exited;
  const left = await tree.kill();
  for (const { readFd } of outputs) closeSync(readFd);
  ends.push({ profile, code, signal, left: left.length });
  place.leave();
}
pipes.close();
await host.close();
const { level, means } = host.containment;
console.log(JSON.stringify({ uid: process.getuid(), level, means, ends }));
