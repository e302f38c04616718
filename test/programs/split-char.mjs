// Writes a character of three bytes in three pieces, with a pause between, then bytes that are not UTF-8.
import { writeSync } from 'node:fs';

const pause = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
for (const byte of Buffer.from('a€b')) {
  writeSync(1, Buffer.of(byte));
  pause(40);
}
writeSync(1, Buffer.from([0xff, 0xfe]));
