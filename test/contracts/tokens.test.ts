/** Which tokens are taken: secrets in rotation, public keys of an issuer that comes and goes, and every claim that counts. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, exportSPKI, generateKeyPair, type JWK, SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AppError } from '../../src/errors.js';
import { createPublicKeys } from '../../src/gateway/public-keys.js';
import { createTokenVerifier } from '../../src/gateway/tokens.js';
import { silentLog } from '../support/stores.js';
import { makeToken, unsignedToken } from '../support/tokens.js';

const present = 'the present secret, 32 characters!';
const before = 'the secret before, 32 characters!!';

const codeOf = (asked: Promise<unknown>): Promise<string> =>
  asked.then(
    () => 'taken',
    (error) => (error instanceof AppError ? error.code : `not ours: ${error}`),
  );
const claims = { sub: 'ann', scope: 'read run' };

describe('secrets', () => {
  const verifier = createTokenVerifier({ secrets: [present, before], now: Date.now });

  it('[IS1] the present one and the one before are taken, one after that is not', async () => {
    expect(await codeOf(verifier.verify(makeToken(present, claims)))).toBe('taken');
    expect(await codeOf(verifier.verify(makeToken(before, claims)))).toBe('taken');
    expect(await codeOf(verifier.verify(makeToken('x'.repeat(32), claims)))).toBe('UNAUTHENTICATED');
    const rotated = createTokenVerifier({ secrets: [present], now: Date.now });
    expect(await codeOf(rotated.verify(makeToken(before, claims)))).toBe('UNAUTHENTICATED');
  });

  it('[IS1] a token that is too old says so with either secret; one that is not signed by us says nothing', async () => {
    for (const secret of [present, before]) {
      expect(await codeOf(verifier.verify(makeToken(secret, { ...claims, ttlSeconds: -60 })))).toBe('TOKEN_EXPIRED');
    }
    const other = makeToken('x'.repeat(32), { ...claims, ttlSeconds: -60 });
    expect(await codeOf(verifier.verify(other))).toBe('UNAUTHENTICATED');
    expect(await codeOf(verifier.verify(unsignedToken(claims)))).toBe('UNAUTHENTICATED');
    expect(await codeOf(verifier.verify(undefined))).toBe('UNAUTHENTICATED');
  });

  const sign = (payload: Record<string, unknown>, alg = 'HS256') =>
    new SignJWT(payload).setProtectedHeader({ alg }).sign(new TextEncoder().encode(present));
  const soon = () => Math.floor(Date.now() / 1_000) + 60;

  it('[IS1] exp and sub are required, nbf is kept, and clocks may differ by 5 s', async () => {
    expect(await codeOf(verifier.verify(await sign({ sub: 'ann' })))).toBe('UNAUTHENTICATED');
    expect(await codeOf(verifier.verify(await sign({ exp: soon() })))).toBe('UNAUTHENTICATED');
    const startsIn = (seconds: number) =>
      sign({ sub: 'ann', exp: soon(), nbf: Math.floor(Date.now() / 1_000) + seconds });
    expect(await codeOf(verifier.verify(await startsIn(30)))).toBe('UNAUTHENTICATED');
    expect(await codeOf(verifier.verify(await startsIn(3)))).toBe('taken');
    expect(await codeOf(verifier.verify(makeToken(present, { ...claims, ttlSeconds: -3 })))).toBe('taken');
  });

  it('[IS1] another algorithm with the right secret is not taken', async () => {
    expect(await codeOf(verifier.verify(await sign({ sub: 'ann', exp: soon() }, 'HS512')))).toBe('UNAUTHENTICATED');
  });

  it('[IS1] issuer and audience are required where they are set, an audience also among several', async () => {
    const strict = createTokenVerifier({ secrets: [present], issuer: 'us', audience: 'homing', now: Date.now });
    const signed = (more: object) => sign({ sub: 'ann', exp: soon(), ...more });
    expect(await codeOf(strict.verify(await signed({ iss: 'us', aud: ['other', 'homing'] })))).toBe('taken');
    for (const more of [
      {},
      { iss: 'us' },
      { aud: 'homing' },
      { iss: 'them', aud: 'homing' },
      { iss: 'us', aud: 'x' },
    ]) {
      expect(await codeOf(strict.verify(await signed(more))), JSON.stringify(more)).toBe('UNAUTHENTICATED');
    }
  });

  it('a token names the pools it may use, only the default one unless it does', async () => {
    expect((await verifier.verify(makeToken(present, claims))).pools).toEqual(['default']);
    expect((await verifier.verify(makeToken(present, { ...claims, pools: ['gpu'] }))).pools).toEqual(['gpu']);
  });
});

describe('public keys', () => {
  let issuer: Server;
  let url: string;
  let asked = 0;
  let answers = true;
  let published: JWK[] = [];

  const pair = async (kid: string, alg = 'ES256') => {
    const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true });
    const jwk = { ...(await exportJWK(publicKey)), kid, alg, use: 'sig' };
    const token = (more: object = {}) =>
      new SignJWT({ ...claims, ...more }).setProtectedHeader({ alg, kid }).setExpirationTime('1m').sign(privateKey);
    return { jwk, token, publicKey };
  };

  beforeAll(async () => {
    issuer = createServer((_request, response) => {
      asked += 1;
      if (!answers) return response.destroy();
      return response.setHeader('content-type', 'application/json').end(JSON.stringify({ keys: published }));
    });
    await new Promise<void>((resolve) => issuer.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(issuer.address() as AddressInfo).port}/keys`;
  });
  afterAll(() => new Promise((resolve) => issuer.close(resolve)));

  const verifierFor = (options: { coolDownMs?: number; keepMs?: number; secrets?: string[] } = {}) => {
    let nowMs = 0;
    const publicKeys = createPublicKeys({ url, log: silentLog, monotonic: () => nowMs, ...options });
    const verifier = createTokenVerifier({ secrets: options.secrets ?? [], publicKeys, now: Date.now });
    return {
      publicKeys,
      verifier,
      later: (ms: number) => {
        nowMs += ms;
      },
    };
  };

  it('[IS1] a token signed with a published key is taken, and the keys are fetched once for many', async () => {
    const [one, two, other] = [await pair('one'), await pair('two', 'EdDSA'), await pair('one')];
    published = [one.jwk, two.jwk];
    const { verifier } = verifierFor();
    expect(verifier.anonymous).toBe(false);
    asked = 0;
    const tokens = await Promise.all([one.token(), two.token(), one.token({ tenant: 'acme' })]);
    for (const token of tokens) expect(await codeOf(verifier.verify(token))).toBe('taken');
    expect(asked).toBe(1);
    expect(await codeOf(verifier.verify(await other.token()))).toBe('UNAUTHENTICATED');
    expect(await codeOf(verifier.verify(unsignedToken(claims)))).toBe('UNAUTHENTICATED');
  });

  it('[IS1] the public key is no secret: a token signed with its text by HS256 is refused', async () => {
    const one = await pair('one', 'RS256');
    published = [one.jwk];
    const { verifier } = verifierFor({ secrets: [present] });
    const confused = await new SignJWT(claims)
      .setProtectedHeader({ alg: 'HS256', kid: 'one' })
      .setExpirationTime('1m')
      .sign(new TextEncoder().encode(await exportSPKI(one.publicKey)));
    expect(await codeOf(verifier.verify(confused))).toBe('UNAUTHENTICATED');
    // Both kinds side by side, so that one can be changed for the other.
    expect(await codeOf(verifier.verify(await one.token()))).toBe('taken');
    expect(await codeOf(verifier.verify(makeToken(present, claims)))).toBe('taken');
  });

  it('a new key is found without a restart; unknown ones make no storm of fetches', async () => {
    const [old, fresh] = [await pair('old'), await pair('fresh')];
    published = [old.jwk];
    const { verifier } = verifierFor({ coolDownMs: 0 });
    expect(await codeOf(verifier.verify(await old.token()))).toBe('taken');
    published = [fresh.jwk];
    expect(await codeOf(verifier.verify(await fresh.token()))).toBe('taken');
    // Withdrawn.
    expect(await codeOf(verifier.verify(await old.token()))).toBe('UNAUTHENTICATED');
    const calm = verifierFor();
    asked = 0;
    const unknown = await old.token();
    for (let i = 0; i < 20; i += 1) expect(await codeOf(calm.verifier.verify(unknown))).toBe('UNAUTHENTICATED');
    expect(asked).toBe(1);
  });

  it('known keys go on while their address is away; without any the answer is to come back', async () => {
    const one = await pair('one');
    published = [one.jwk];
    const known = verifierFor({ keepMs: 0 });
    await known.publicKeys.warm();
    answers = false;
    try {
      expect(await codeOf(known.verifier.verify(await one.token()))).toBe('taken');
      const stranger = await pair('stranger');
      expect(await codeOf(known.verifier.verify(await stranger.token()))).toBe('UNAUTHENTICATED');
      const fresh = verifierFor();
      await fresh.publicKeys.warm();
      asked = 0;
      const refusal = await fresh.verifier.verify(await one.token()).catch((error) => error);
      expect(refusal).toMatchObject({ code: 'KEYS_UNAVAILABLE', retryable: true, retryAfterMs: 2_000 });
      // Not asked again and again.
      expect(asked).toBe(0);
      answers = true;
      fresh.later(2_000);
      expect(await codeOf(fresh.verifier.verify(await one.token()))).toBe('taken');
    } finally {
      answers = true;
    }
  });
});
