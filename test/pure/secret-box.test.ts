/** Secrets on their way through Redis (CO10). */
import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { createSecretBox } from '../../src/ops/secret-box.js';
import type { CommandId } from '../../src/protocol/ids.js';

const chance = { bytes: (size: number) => randomBytes(size) };
const newKey = () => randomBytes(32).toString('base64');
const [one, other] = ['cmd_one', 'cmd_other'] as CommandId[] as [CommandId, CommandId];

describe('[CO10] a box of secrets', () => {
  const key = newKey();
  const box = createSecretBox([key], chance)!;
  const secrets = { PASSWORD: 'hunter22', KEY: 'ö\n"' };

  it('gives back what was put in, and shows nothing of it', () => {
    const sealed = box.seal(one, secrets);
    expect(box.open(one, sealed)).toEqual(secrets);
    expect(sealed).not.toContain('hunter22');
    expect(Buffer.from(sealed.split('.')[1] ?? '', 'base64').includes('hunter22')).toBe(false);
    expect(box.seal(one, secrets)).not.toBe(sealed);
  });

  it('is of its command alone, and can not be changed', () => {
    const sealed = box.seal(one, secrets);
    expect(() => box.open(other, sealed)).toThrow('another command');
    for (let at = sealed.indexOf('.') + 1; at < sealed.length - 2; at += 7) {
      const changed = `${sealed.slice(0, at)}${sealed[at] === 'A' ? 'B' : 'A'}${sealed.slice(at + 1)}`;
      expect(() => box.open(one, changed)).toThrow();
    }
  });

  it('opens what was sealed with the key before, and names a key it does not know', () => {
    const sealed = box.seal(one, secrets);
    expect(createSecretBox([newKey(), key], chance)!.open(one, sealed)).toEqual(secrets);
    expect(() => createSecretBox([newKey()], chance)!.open(one, sealed)).toThrow('not known here');
    expect(createSecretBox([], chance)).toBeUndefined();
  });

  it('tells the same secrets from others', () => {
    expect(box.fingerprint({ KEY: 'ö\n"', PASSWORD: 'hunter22' })).toBe(box.fingerprint(secrets));
    expect(box.fingerprint({ ...secrets, PASSWORD: 'hunter23' })).not.toBe(box.fingerprint(secrets));
    expect(createSecretBox([newKey()], chance)!.fingerprint(secrets)).not.toBe(box.fingerprint(secrets));
  });
});
