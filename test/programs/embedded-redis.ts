/** Starts an embedded Redis in the folder given, says its URL, and stays until it is killed or its stdin ends. */
import { startEmbeddedRedis } from '../../src/redis/embedded-server.js';

const silent = { debug() {}, info() {}, warn() {}, error() {}, child: () => silent };
const [dataDir = '', path = '', cacheDir = ''] = process.argv.slice(2);
try {
  const redis = await startEmbeddedRedis({ dataDir, path, cacheDir, download: false, log: silent });
  console.log(redis.url);
  process.stdin.resume().on('end', () => void redis.close());
} catch (error) {
  console.log((error as Error).message);
  process.exitCode = 1;
}
