/** What handlers of HTTP routes need alike: the caller's claims, and values that fit their shapes. */
import type { FastifyRequest } from 'fastify';
import type { z } from 'zod';
import { AppError } from '../errors.js';
import { parseShape } from '../protocol/faults.js';
import type { Claims } from '../protocol/token.js';
import { withTrail } from './audit-trail.js';
import { commandInToken, verifyCommandToken } from './command-token.js';
import type { Node } from './handlers/context.js';
import { bearerToken } from './tokens.js';

/** @throws AppError UNAUTHENTICATED, TOKEN_EXPIRED, RATE_LIMITED, KEYS_UNAVAILABLE */
export async function claimsOf(node: Node, request: FastifyRequest): Promise<Claims> {
  const token = bearerToken(request.headers.authorization);
  const inside = commandInToken(token);
  const claims = await node.attempts.guard(node.addressOf(request.raw), token, () =>
    token === undefined || inside === undefined
      ? node.verifier.verify(token)
      : verifyCommandToken(node.ports.commands, inside, token),
  );
  return withTrail(claims, node.trailOf(request));
}

/** @throws AppError INVALID_PARAMS naming the field, the limit and what was got */
export function parse<T>(shape: z.ZodType<T>, value: unknown): T {
  const parsed = parseShape(shape, value);
  if (parsed.ok) return parsed.value;
  throw new AppError('INVALID_PARAMS', parsed.message, parsed.field === undefined ? {} : { field: parsed.field });
}
