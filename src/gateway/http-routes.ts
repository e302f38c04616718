/** The HTTP door: the same rules as over a connection, for callers without a session (PROTOCOL section 4). */
import type { FastifyInstance } from 'fastify';
import type { Node } from './handlers/context.js';
import { addCommandRoutes } from './http-commands.js';
import { addConversationRoutes } from './http-conversations.js';
import { addLogRoutes } from './http-logs.js';
import { openApi } from './openapi.js';

export function addHttpRoutes(app: FastifyInstance, node: Node): void {
  addCommandRoutes(app, node);
  addLogRoutes(app, node);
  addConversationRoutes(app, node);

  // No secret is in it, and a tool that reads it has no token yet.
  const description = openApi(node.options.version);
  app.get('/openapi.json', async () => description);
}
