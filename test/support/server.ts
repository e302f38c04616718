/**
 * The server the tests start, found or fetched by the product's own code, so that they run where no Redis is installed.
 * As vitest's global setup it is fetched once, before the first test needs it.
 */
import { findOrFetchServer, type ServerBinary, serverSourcesOf } from '../../src/redis/server-binary.js';

export function testServer(): Promise<ServerBinary> {
  const say = (sentence: string) => console.error(sentence);
  return findOrFetchServer({ ...serverSourcesOf(process.env), download: true, say });
}

export async function setup(): Promise<void> {
  // Where it fails, the tests that need one say why; the others need none.
  await testServer().catch(() => undefined);
}
