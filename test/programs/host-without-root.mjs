// Opens the host of a worker as whoever runs this, enters each place once, and tells what came of it as JSON.
// argv: the folder of the build, a data folder, ways that are not to be tried.
import { spawn } from 'node:child_process';
import { once } from 'node:events';

const [dist, dataDir, ...without] = process.argv.slice(2);
const { openHost } = await import(`${dist}/worker/host.js`);
const silent = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
const path = process.env.PATH;
const host = await openHost({ id: 'test', floor: 'auto', without, dataDir, keepMs: 1_000, path, log: silent });
const ends = [];
for (const profile of [undefined, ...host.containment.profiles]) {
  const place = await host.containment.place(profile, '/');
  const [file, ...args] = [...place.enter, '/bin/sh', '-c', 'sleep 600 & setsid sleep 600 & kill -9 $$'];
  const child = spawn(file, args, { stdio: 'ignore', detached: true });
  const { tree } = place.adopt(child.pid, 'NO=MARK');
  const [code, signal] = await once(child, 'exit');
  const left = await tree.kill();
  ends.push({ profile, code, signal, left: left.length });
  place.leave();
}
await host.close();
console.log(JSON.stringify({ uid: process.getuid(), level: host.containment.level, ends }));
