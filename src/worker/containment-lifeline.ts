/**
 * The helper that ends a worker's commands when the worker can not: at containment `group` nothing else does.
 *
 * It is told the groups that run and holds a pipe from the worker, which the kernel closes when the worker is gone. Then it
 * kills the groups, and whoever carries the worker's mark in its environment, until there is none left.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Log } from '../domain/ports.js';
import { messageOf } from '../errors.js';
import { SHELL } from './containment-room.js';

export interface Lifeline {
  /** From now on this group does not outlive the worker. */
  add(group: number): void;
  remove(group: number): void;
  /** Lets the helper go without killing anybody that was removed. Idempotent. */
  close(): void;
}

const RESTART_MS = 1_000;

/** $1: the mark. Words on stdin: `+ group`, `- group`. */
const SCRIPT = `
trap '' HUP INT TERM QUIT
groups=' '
while read -r op group; do
  case $op in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="\${groups%% $group *} \${groups#* $group }" ;; esac ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
[ -d /proc/self ] || exit 0
for round in 1 2 3 4 5 6 7 8 9 10; do
  # Its status says nothing: there is always one that ended while it looked.
  found=$(grep -lsF -- "$1" /proc/[0-9]*/environ)
  [ -n "$found" ] || exit 0
  for file in $found; do
    pid=\${file#/proc/}
    kill -s KILL "\${pid%/environ}" 2>/dev/null
  done
done
`;

export function createLifeline(mark: string, log: Log): Lifeline {
  const groups = new Set<number>();
  let helper: ChildProcess | undefined;
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  function start(): void {
    const child = spawn(SHELL, ['-c', SCRIPT, 'homing-lifeline', mark], {
      stdio: ['pipe', 'ignore', 'ignore'],
      env: { PATH: '/usr/bin:/bin' },
      cwd: '/',
      // A group of its own: who kills the worker's group must not kill this.
      detached: true,
    });
    helper = child;
    child.stdin?.on('error', () => {}); // It ended; `exit` tells.
    let told = false;
    const over = (why: string) => {
      if (closed || told) return;
      told = true;
      log.warn({ why }, 'the helper that ends commands after this worker is gone, starting another');
      timer = setTimeout(start, RESTART_MS);
      timer.unref();
    };
    child.once('exit', () => over('it ended'));
    child.once('error', (error) => over(messageOf(error)));
    for (const group of groups) tell('+', group);
    child.unref();
  }

  const tell = (op: '+' | '-', group: number) => void helper?.stdin?.write(`${op} ${group}\n`);

  start();
  return {
    add(group) {
      groups.add(group);
      tell('+', group);
    },
    remove(group) {
      groups.delete(group);
      tell('-', group);
    },
    close() {
      if (closed) return;
      closed = true;
      clearTimeout(timer);
      helper?.stdin?.end();
    },
  };
}
