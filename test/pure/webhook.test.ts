/** Where webhooks may go, and how they are signed. */
import { createHmac } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { parseSettings } from '../../src/config.js';
import type { CommandStore } from '../../src/domain/ports.js';
import { withWebhookIntent } from '../../src/domain/webhook-intent.js';
import { isAllowed, parseAllowList } from '../../src/protocol/webhook.js';
import { signedHeaders } from '../../src/webhook/sign.js';

describe('the allow-list', () => {
  const allowed = parseAllowList('https://a.example/hooks, http://b.example:8080/') ?? [];

  it.each([
    'https://a.example/hooks',
    'https://a.example/hooks/',
    'https://a.example/hooks/x?y=1',
    'https://A.example:443/hooks/x',
    'http://b.example:8080/anything',
  ])('[IS1] lets %s through', (address) => {
    expect(isAllowed(allowed, address)).toBe(true);
  });

  it.each([
    'http://a.example/hooks',
    'https://a.example/hooksome',
    'https://a.example/',
    'https://a.example/hooks/../admin',
    'https://a.example/hooks/%2e%2e/admin',
    'https://a.example.evil.example/hooks',
    'https://evil.example/https://a.example/hooks',
    'https://user:pass@a.example/hooks',
    'https://a.example@evil.example/hooks',
    'https://a.example:444/hooks',
    'http://b.example/x',
    'file:///etc/passwd',
    'javascript:alert(1)',
    'a.example/hooks',
    '',
  ])('[IS1] keeps %s out', (address) => {
    expect(isAllowed(allowed, address)).toBe(false);
  });

  it('is refused as a setting when it is none, or when there is no secret to sign with', () => {
    for (const list of ['', '  ', 'a.example', 'ftp://a.example', 'https://u:p@a.example', 'https://a.example/?x']) {
      expect(parseAllowList(list), list).toBeUndefined();
    }
    const faults = (env: Record<string, string>) => {
      const parsed = parseSettings(env);
      return parsed.ok ? [] : parsed.faults.map((fault) => fault.split(':')[0]);
    };
    const secret = { HOMING_WEBHOOK_SECRET: 'a secret of 24 characters' };
    expect(faults({ HOMING_WEBHOOK_ALLOW: 'https://a.example', ...secret })).toEqual([]);
    expect(faults({ HOMING_WEBHOOK_ALLOW: 'nonsense', HOMING_PORT: 'x' })).toEqual([
      'HOMING_PORT',
      'HOMING_WEBHOOK_ALLOW',
      'HOMING_WEBHOOK_SECRET',
    ]);
  });
});

describe('the signature', () => {
  it('is what Standard Webhooks says, for a secret as text and as bytes', () => {
    const bytes = Buffer.from('0123456789abcdef0123456789abcdef');
    for (const [secret, key] of [
      ['a secret of 24 characters', Buffer.from('a secret of 24 characters')],
      [`whsec_${bytes.toString('base64')}`, bytes],
    ] as const) {
      const headers = signedHeaders(secret, 'cmd_x-ended', '{"a":1}', 1_700_000_000_999);
      const expected = createHmac('sha256', key).update('cmd_x-ended.1700000000.{"a":1}').digest('base64');
      expect(headers).toEqual({
        'webhook-id': 'cmd_x-ended',
        'webhook-timestamp': '1700000000',
        'webhook-signature': `v1,${expected}`,
      });
    }
  });
});

describe('the intent', () => {
  it('is noted before the end is stored, only for a command that has a webhook, and again while that is repeated', async () => {
    const told: string[] = [];
    let appended = 0;
    const store = {
      claim: async (id: string) => ({ type: 'claimed', spec: id === 'with' ? { notify: { webhook: 'x' } } : {} }),
      append: async ({ commandId }: { commandId: string }) => {
        told.push(`append ${commandId}`);
        appended += 1;
        if (appended === 1) throw new Error('Redis is away');
        return { type: 'appended', headSeq: 1 };
      },
      endWithoutWorker: async (id: string) => void told.push(`end ${id}`),
    } as unknown as CommandStore;
    const presence = { noteDue: async (member: string) => void told.push(member) };
    const watched = withWebhookIntent(store, presence);
    for (const id of ['with', 'without']) await watched.claim(id as never, 'c' as never, 'w' as never, 'group');
    const ending = (commandId: string) => ({ commandId, outcome: {}, entries: [] }) as never;
    await expect(watched.append(ending('with'))).rejects.toThrow();
    await watched.append(ending('with'));
    await watched.append(ending('without'));
    await watched.endWithoutWorker('lost' as never, '', 'lost', '');
    expect(told).toEqual([
      ...['hook:with', 'append with', 'hook:with', 'append with'],
      'append without',
      ...['hook:lost', 'end lost'],
    ]);
  });
});
