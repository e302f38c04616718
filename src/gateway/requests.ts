/** From a request to the text of its answer: method, shape, session, handler; every failure becomes its JSON-RPC error. */
import { AppError, messageOf } from '../errors.js';
import { errorText, RPC, type RpcError, type RpcId, resultText, rpcError } from '../protocol/codec.js';
import { parseShape } from '../protocol/faults.js';
import { type MethodName, type MethodParams, methods } from '../protocol/methods.js';
import { noteRequest, type Trail, withTrail } from './audit-trail.js';
import type { Answer, Caller, Node } from './handlers/context.js';
import { handlers, type OpeningMethod, openingHandlers } from './handlers/index.js';

export interface Answered {
  readonly text: string;
  /** To be called when the text is in the outbox. */
  readonly afterwards?: () => void;
}

export interface Requests {
  /** Never rejects. */
  answer(request: { readonly id: RpcId; readonly method: string; readonly params: unknown }): Promise<Answered>;
  /** The last refusal was for want of Redis. */
  redisFailed(): boolean;
  /** Open or resume was asked for and is not answered yet. */
  isOpening(): boolean;
}

const isOpening = (method: string): method is OpeningMethod => Object.hasOwn(openingHandlers, method);
const isMethod = (method: string): method is MethodName => Object.hasOwn(methods, method);

/** A fault with a code of JSON-RPC's own. */
class RpcFault extends Error {
  readonly code: number;
  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

class ConnectionRequests implements Requests {
  readonly #node: Node;
  readonly #caller: Caller;
  #opening: Promise<unknown> | undefined;
  #redisFailed = false;

  constructor(node: Node, caller: Caller) {
    this.#node = node;
    this.#caller = caller;
  }

  async answer({ id, method, params }: Parameters<Requests['answer']>[0]): Promise<Answered> {
    try {
      const { result, afterwards } = await this.#askAudited(method, params);
      const text = resultText(id, result);
      return afterwards === undefined ? { text } : { text, afterwards };
    } catch (error) {
      return { text: errorText(id, this.#describe(error, method)) };
    }
  }

  redisFailed(): boolean {
    return this.#redisFailed;
  }

  isOpening(): boolean {
    return this.#opening !== undefined;
  }

  /** The answer, and its line in the audit. */
  async #askAudited(method: string, params: unknown): Promise<Answer> {
    if (!isMethod(method)) throw new RpcFault(RPC.METHOD_NOT_FOUND, `there is no method "${method.slice(0, 64)}"`);
    const trail: Trail = {};
    const note = (result: unknown, outcome: string) => {
      const { sessionId, place } = this.#caller.session() ?? {};
      const { address } = this.#caller;
      noteRequest(this.#node.audit, {
        ...{ method, params, result, trail, address, sessionId, outcome },
        conversation: place?.conversation,
      });
    };
    try {
      const answer = await this.#ask(method, params, trail);
      note(answer.result, 'ok');
      return answer;
    } catch (error) {
      note(
        undefined,
        error instanceof AppError ? error.code : error instanceof RpcFault ? 'INVALID_PARAMS' : 'INTERNAL',
      );
      throw error;
    }
  }

  async #ask(method: MethodName, params: unknown, trail: Trail): Promise<Answer> {
    const caller = this.#caller;
    if (isOpening(method)) {
      try {
        return await this.#open(method, params);
      } finally {
        trail.claims = caller.claims();
      }
    }
    // Sent before the answer to open: it waits, so that a client need not. A failed opening is answered for itself.
    await this.#opening?.catch(() => undefined);
    const session = caller.session();
    const claims = caller.claims();
    if (session === undefined || claims === undefined || session.isOver()) {
      throw new AppError('UNAUTHENTICATED', 'open or resume a session first');
    }
    const own = withTrail(claims, trail);
    return handlers[method](this.#node, { caller, claims: own, session }, parseParams(method, params) as never);
  }

  async #open(method: OpeningMethod, params: unknown): Promise<Answer> {
    const node = this.#node;
    const caller = this.#caller;
    if (caller.session() !== undefined || this.#opening !== undefined) {
      throw new RpcFault(RPC.INVALID_REQUEST, 'this connection has opened its session already');
    }
    const parsed: { readonly token?: string | undefined; readonly resumeToken?: string } = parseParams(method, params);
    const opened = node.attempts.guard(caller.address, parsed.resumeToken ?? parsed.token, () =>
      openingHandlers[method](node, caller, parsed as never),
    );
    this.#opening = opened;
    try {
      return await opened;
    } finally {
      this.#opening = undefined;
    }
  }

  #describe(error: unknown, method: string): RpcError {
    const { meter, log } = this.#node;
    if (error instanceof RpcFault) return { code: error.code, message: error.message };
    if (error instanceof AppError) {
      this.#redisFailed = error.code === 'REDIS_UNAVAILABLE';
      meter.count('homing_requests_refused_total', { code: error.code });
      return rpcError(error);
    }
    meter.count('homing_internal_errors_total');
    const { id: connectionId } = this.#caller;
    log.error({ connectionId, method, fault: messageOf(error) }, 'a request failed by our own fault');
    return { code: RPC.INTERNAL, message: 'internal error' };
  }
}

export const createRequests = (node: Node, caller: Caller): Requests => new ConnectionRequests(node, caller);

/** @throws AppError INVALID_PARAMS naming the field */
function parseParams<M extends MethodName>(method: M, params: unknown): MethodParams<M> {
  const parsed = parseShape<unknown>(methods[method], params);
  if (parsed.ok) return parsed.value as MethodParams<M>;
  const { message, field } = parsed;
  throw new AppError('INVALID_PARAMS', message, field === undefined ? {} : { field });
}
