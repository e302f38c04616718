/** Every method and its handler. Two of them make the session; the others need one. */
import type { MethodName } from '../../protocol/methods.js';
import {
  adoptCommand,
  attachViewer,
  detachViewer,
  getCommand,
  killByRequest,
  listCommands,
  readCommandLog,
  resizePty,
  runCommand,
  writeStdin,
} from './command.js';
import type { Handler, SessionlessHandler } from './context.js';
import { openSession, resumeSession } from './open.js';
import { closeSession, refreshToken, touchSession } from './session.js';

export type OpeningMethod = 'session.open' | 'session.resume';

export const openingHandlers: { readonly [M in OpeningMethod]: SessionlessHandler<M> } = {
  'session.open': openSession,
  'session.resume': resumeSession,
};

export const handlers: { readonly [M in Exclude<MethodName, OpeningMethod>]: Handler<M> } = {
  'session.close': closeSession,
  'session.touch': touchSession,
  'session.refresh': refreshToken,
  'command.run': runCommand,
  'command.list': listCommands,
  'command.get': getCommand,
  'command.log': readCommandLog,
  'command.kill': killByRequest,
  'command.write': writeStdin,
  'command.resize': resizePty,
  'command.adopt': adoptCommand,
  'command.attach': attachViewer,
  'command.detach': detachViewer,
};
