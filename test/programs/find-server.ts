/** Finds or fetches a server with the environment it has, and says which. `--no-download` forbids fetching. */
import { findOrFetchServer, serverSourcesOf } from '../../src/redis/server-binary.js';

const download = !process.argv.includes('--no-download');
try {
  const say = (sentence: string) => console.log(sentence);
  const server = await findOrFetchServer({ ...serverSourcesOf(process.env), download, say });
  console.log(JSON.stringify(server));
} catch (error) {
  console.log((error as Error).message);
  process.exitCode = 1;
}
