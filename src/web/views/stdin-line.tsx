/** A line of input for a command that takes some. */
import { useState } from 'preact/hooks';
import type { Command } from '../state/conversation.js';
import type { ConversationProps } from './context.js';

export function StdinLine({ conversation, command }: ConversationProps & { command: Command }) {
  const [text, setText] = useState('');
  const [fault, setFault] = useState('');
  const [closed, setClosed] = useState(false);
  const isPty = command.snapshot.pty !== undefined;

  async function send(data: string, eof: boolean): Promise<void> {
    try {
      setFault('');
      await conversation.write(command.commandId, data, eof);
      setText('');
      if (eof) setClosed(true);
    } catch (error) {
      setFault((error as Error).message);
    }
  }

  if (closed) return <p class="dim stdin-note">Its input is closed.</p>;
  return (
    <form
      class="stdin"
      aria-label="Input for the command"
      onSubmit={(event) => {
        event.preventDefault();
        // A terminal takes what the Return key sends; a pipe takes lines.
        void send(`${text}${isPty ? '\r' : '\n'}`, false);
      }}
    >
      <span class="run-prompt" aria-hidden="true">
        ›
      </span>
      <input
        aria-label="Input line"
        placeholder={isPty ? 'Input line, or type in the terminal' : 'Input line'}
        spellcheck={false}
        autocomplete="off"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="submit">Send</button>
      {!isPty && (
        <button type="button" class="quiet" onClick={() => void send('', true)}>
          End of input
        </button>
      )}
      {fault !== '' && (
        <p class="fault" role="alert">
          {fault}
        </p>
      )}
    </form>
  );
}
