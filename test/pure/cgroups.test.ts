/** Control groups as far as they are files: where ours is, and what a host is told that has none to give. The kernel's part is in test/long. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { locateCgroup } from '../../src/worker/cgroup-mount.js';
import { openCgroups } from '../../src/worker/cgroups.js';

describe('the control group of a process', () => {
  const mount = (root: string, at: string) => `30 23 0:26 ${root} ${at} rw,relatime shared:9 - cgroup2 cgroup2 rw`;

  it('is found below the mount of version 2, also beside version 1 and in a container', () => {
    const own = '0::/system.slice/homing.service\n';
    expect(locateCgroup(own, mount('/', '/sys/fs/cgroup'))).toBe('/sys/fs/cgroup/system.slice/homing.service');
    const first = '31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n';
    const hybrid = first + mount('/', '/sys/fs/cgroup/unified');
    expect(locateCgroup(`4:memory:/\n${own}`, hybrid)).toBe('/sys/fs/cgroup/unified/system.slice/homing.service');
    expect(locateCgroup('0::/a/b/c\n', mount('/a/b', '/with\\040space'))).toBe('/with space/c');
  });

  it('is not there without a mount that shows it', () => {
    expect(locateCgroup('0::/a\n', '')).toBeUndefined();
    expect(locateCgroup('4:memory:/\n', mount('/', '/sys/fs/cgroup'))).toBeUndefined();
    expect(locateCgroup('0::/a\n', mount('/other', '/sys/fs/cgroup'))).toBeUndefined();
  });
});

describe('control groups', () => {
  let own = '';
  beforeEach(() => {
    own = mkdtempSync(join(tmpdir(), 'homing-cgroup-'));
  });
  afterEach(() => rmSync(own, { recursive: true, force: true }));
  const file = (...path: string[]) => readFileSync(join(own, ...path), 'utf8');

  it('are not used where version 2 does not control memory and processes, and nothing is made', () => {
    writeFileSync(join(own, 'cgroup.controllers'), 'cpu memory\n');
    expect(openCgroups('w', own)).toEqual({ type: 'none', why: 'version 2 does not control pids here' });
    expect(openCgroups('w', join(own, 'nowhere'))).toMatchObject({ type: 'none' });
    expect(readdirSync(own)).toEqual(['cgroup.controllers']);
  });

  it('are set as asked: all of a command or nothing, no swap, and room for threads', () => {
    writeFileSync(join(own, 'cgroup.controllers'), 'cpu memory pids\n');
    // Left by a worker that died; a worker that lives is in its own.
    for (const [name, populated] of [
      ['homing-dead', 0],
      ['homing-alive', 1],
    ]) {
      mkdirSync(join(own, String(name)));
      writeFileSync(join(own, String(name), 'cgroup.events'), `populated ${populated}\nfrozen 0\n`);
    }
    const opened = openCgroups('w', own);
    if (opened.type === 'none') throw new Error(opened.why);
    expect(file('homing-w', 'worker', 'cgroup.procs')).toBe('0');
    expect(file('cgroup.subtree_control')).toBe('+memory +pids');
    expect(opened.cgroups.group('idle', {})).toBeUndefined();
    const group = opened.cgroups.group('cmd', { memoryBytes: 1_000_000.5, processes: 2 });
    const of = (name: string) => file('homing-w', 'cmd', name);
    expect(['memory.max', 'memory.swap.max', 'memory.oom.group', 'pids.max'].map(of)).toEqual([
      '1000001',
      '0',
      '1',
      '192',
    ]);
    expect(group?.enter.at(-1)).toBe(join(own, 'homing-w', 'cmd', 'cgroup.procs'));
    expect(group?.killedForMemory()).toBe(false);
    writeFileSync(join(own, 'homing-w', 'cmd', 'memory.events'), 'oom 2\noom_kill 1\noom_group_kill 1\n');
    expect(group?.killedForMemory()).toBe(true);
    opened.cgroups.close();
    expect(file('cgroup.procs')).toBe('0');
  });
});
