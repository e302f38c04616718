import { expect, test } from 'vitest';
import { ANONYMOUS, coversConversation, mayKnow, parseClaims, parseScopes } from '../../src/protocol/token.js';

const base = { sub: 'ann', exp: 1_000 };

test('a token without tenant, scope and pools gets the least: default tenant, no scope, default pool', () => {
  const claims = parseClaims(base);
  expect(claims).toMatchObject({ principal: 'ann', tenant: 'default', pools: ['default'], expiresAtMs: 1_000_000 });
  expect(claims?.scopes.size).toBe(0);
});

test('a token without principal or end, or with wrong types, is none', () => {
  for (const payload of [undefined, {}, { sub: 'ann' }, { exp: 1 }, { ...base, conversations: 'chat' }]) {
    expect(parseClaims(payload)).toBeUndefined();
  }
  expect(parseClaims({ ...base, conversations: ['a*b'] })).toBeUndefined();
});

test('scopes are split at spaces and commas; unknown ones are ignored', () => {
  expect([...parseScopes('read, run  fly')]).toEqual(['read', 'run']);
});

test('[IS1] a conversation is covered by its name or a prefix, and by nothing else', () => {
  const claims = { ...ANONYMOUS, conversations: ['chat-1', 'team.*'] };
  expect(coversConversation(claims, 'chat-1')).toBe(true);
  expect(coversConversation(claims, 'chat-12')).toBe(false);
  expect(coversConversation(claims, 'team.a')).toBe(true);
  expect(coversConversation(claims, 'team')).toBe(false);
  expect(coversConversation({ ...ANONYMOUS, conversations: [] }, 'chat-1')).toBe(false);
  expect(coversConversation(ANONYMOUS, 'anything')).toBe(true);
});

test('[IS1] tenant, principal and conversation must all fit', () => {
  const claims = { ...ANONYMOUS, principal: 'ann', tenant: 't', conversations: ['c'] };
  const thing = { tenant: 't', principal: 'ann', conversation: 'c' };
  expect(mayKnow(claims, thing)).toBe(true);
  expect(mayKnow(claims, { ...thing, tenant: 'u' })).toBe(false);
  expect(mayKnow(claims, { ...thing, principal: 'bob' })).toBe(false);
  expect(mayKnow(claims, { ...thing, conversation: 'd' })).toBe(false);
});
