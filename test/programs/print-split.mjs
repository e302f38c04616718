// Prints [$SECRET] once for each place where it can be cut in two, with a pause of so many ms at the cut; or only cut there.
import { writeSync } from 'node:fs';

const [pauseMs, only] = process.argv.slice(2).map(Number);
const bytes = Buffer.from(process.env.SECRET);
const pause = () => new Promise((resolve) => setTimeout(resolve, pauseMs));
for (let cut = only ?? 0; cut <= (only ?? bytes.length); cut += 1) {
  writeSync(1, Buffer.concat([Buffer.from('['), bytes.subarray(0, cut)]));
  await pause();
  writeSync(1, Buffer.concat([bytes.subarray(cut), Buffer.from(']\n')]));
  await pause();
}
