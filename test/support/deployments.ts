/** The ways Redis is deployed that the contracts are tried on: what holds on one server holds on all of them. */
import { startRedis } from './redis.js';
import { startRedisCluster } from './redis-cluster.js';
import { startRedisSentinel } from './redis-sentinel.js';

export interface Deployment extends AsyncDisposable {
  readonly url: string;
}

export const DEPLOYMENTS: readonly {
  readonly name: string;
  start(config?: readonly string[]): Promise<Deployment>;
}[] = [
  { name: 'one server', start: (config = []) => startRedis({ config }) },
  { name: 'a Cluster', start: startRedisCluster },
  { name: 'a Sentinel', start: startRedisSentinel },
];
