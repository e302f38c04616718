/** What handlers of HTTP routes need alike: the caller's claims, and values that fit their shapes. */
import type { FastifyRequest } from 'fastify';
import type { z } from 'zod';
import { AppError } from '../errors.js';
import { parseShape } from '../protocol/faults.js';
import type { Claims } from '../protocol/token.js';
import { commandInToken, verifyCommandToken } from './command-token.js';
import type { Node } from './handlers/context.js';
import { bearerToken } from './tokens.js';

/** @throws AppError UNAUTHENTICATED, TOKEN_EXPIRED */
export async function claimsOf(node: Node, request: FastifyRequest): Promise<Claims> {
  const token = bearerToken(request.headers.authorization);
  const inside = commandInToken(token);
  if (token === undefined || inside === undefined) return node.verifier.verify(token);
  return verifyCommandToken(node.ports.commands, inside, token);
}

/** @throws AppError INVALID_PARAMS naming the field, the limit and what was got */
export function parse<T>(shape: z.ZodType<T>, value: unknown): T {
  const parsed = parseShape(shape, value);
  if (parsed.ok) return parsed.value;
  throw new AppError('INVALID_PARAMS', parsed.message, parsed.field === undefined ? {} : { field: parsed.field });
}
