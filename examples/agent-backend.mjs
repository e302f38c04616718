/**
 * The backend of an agent UI. It has no tabs of its own: it starts commands for the tabs of its users, and follows each
 * conversation with one stream of events, from which it tells its agent what ended. The output itself goes straight to the
 * tab that asked, through the node that this tab is connected to.
 *
 * Its token has the scopes `read run kill delegate`.
 *
 *   POST /chats/{chat}/tools   {"sessionId": "ses_…", "script": "make test"}   starts a command for that tab
 *   GET  /chats/{chat}/ended                                                    what ended in the chat so far
 */
import { createServer } from 'node:http';
import { createBackend, withOrigin } from 'homing/client';

const homing = createBackend({
  url: process.env.HOMING_URL ?? 'http://127.0.0.1:7420',
  token: process.env.HOMING_TOKEN ?? '',
});

/** One stream for each chat, however many tabs and commands it has. */
const chats = new Map();

function chatOf(conversation) {
  const known = chats.get(conversation);
  if (known !== undefined) return known;
  const chat = { ended: [], stop: new AbortController() };
  chats.set(conversation, chat);
  void follow(conversation, chat);
  return chat;
}

async function follow(conversation, chat) {
  try {
    for await (const { entry } of homing.followConversation(conversation, { signal: chat.stop.signal })) {
      // Here an agent would be told; the tail is enough for a model to go on with.
      if (entry.type === 'ended') chat.ended.push({ commandId: entry.commandId, ...entry.outcome });
    }
  } catch (error) {
    // A wrong token or a conversation it does not cover; what may go away by itself was waited for.
    console.error(`no longer following ${conversation}: ${error.message}`);
    chats.delete(conversation);
  }
}

/** A tool of the agent. It knows nothing of tabs; whatever it runs comes home to the one that the request named. */
async function runTool(script) {
  return homing.run({ script, labels: { tool: 'shell' }, timeouts: { runMs: 10 * 60_000 } });
}

async function bodyOf(request) {
  let text = '';
  for await (const part of request) text += part;
  return JSON.parse(text || '{}');
}

const server = createServer(async (request, response) => {
  const answer = (status, body) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  try {
    const [, conversation, what] = /^\/chats\/([\w.:-]{1,128})\/(tools|ended)$/.exec(request.url ?? '') ?? [];
    if (conversation === undefined) return answer(404, { message: 'there is no such route' });
    const chat = chatOf(conversation);
    if (what === 'ended') return answer(200, { ended: chat.ended });
    const { sessionId, script } = await bodyOf(request);
    answer(202, await withOrigin({ conversation, originSessionId: sessionId }, () => runTool(script)));
  } catch (error) {
    answer(error.retryable ? 503 : 400, { code: error.code, message: error.message });
  }
});

server.listen(Number(process.env.PORT ?? 7480), '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
process.once('SIGTERM', () => {
  for (const { stop } of chats.values()) stop.abort();
  server.close();
});
