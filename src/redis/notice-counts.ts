/** The port NoticeCounts on Redis: one script on one key of the origin's slot, which expires by itself. */
import type { NoticeCounts } from '../domain/ports.js';
import { BREAKER } from '../domain/watch.js';
import type { Keys } from './keys.js';
import type { Scripts } from './scripts.js';

export function createNoticeCounts(options: { readonly keys: Keys; readonly scripts: Scripts }): NoticeCounts {
  const { keys, scripts } = options;
  return {
    async ask({ tag, name }, noticeId) {
      const { notices, windowMs, openMs } = BREAKER;
      const args = [noticeId, notices, windowMs, openMs];
      const [type, openForMs = 0] = (await scripts.run('count-notice', [keys.notices(tag, name)], args)) as
        | ['pass']
        | ['trip' | 'open', number];
      return { type, openForMs };
    },
  };
}
