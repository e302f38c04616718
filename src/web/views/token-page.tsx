/** What a page without a token shows: what it needs, and where that comes from. */
import { useState } from 'preact/hooks';
import { usePage } from './context.js';
import { Mark } from './icons.js';
import { useStore } from './use-store.js';

export function TokenPage() {
  const { app } = usePage();
  const fault = useStore(app.store, ({ tokenFault }) => tokenFault);
  const [token, setToken] = useState('');
  return (
    <main class="lone-page">
      <h1 class="lone-brand">
        <Mark /> Homing
      </h1>
      <form
        class="lone-form"
        onSubmit={(event) => {
          event.preventDefault();
          if (token.trim() !== '') app.useToken(token.trim());
        }}
      >
        <h2>{fault ? 'A new token is needed' : 'A token is needed'}</h2>
        {fault ? (
          <p class="fault" role="alert">
            {fault}
          </p>
        ) : (
          <p>This console shows the commands of one person. A token says who you are and what you may do.</p>
        )}
        <label class="field">
          <span>Token</span>
          <input
            type="password"
            autocomplete="off"
            spellcheck={false}
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
            autofocus
          />
        </label>
        <button type="submit" class="primary" disabled={token.trim() === ''}>
          Open the console
        </button>
      </form>
      <section class="lone-help" aria-label="Where a token comes from">
        <h3>Where it comes from</h3>
        <p>
          <code>homing up</code> prints an address with a token in it. Open that, and this page does not ask.
        </p>
        <p>For somebody else, or for a cluster, make one on a machine that knows its secret:</p>
        <pre>
          <code>homing token --sub alice --scope "read run kill" --ttl 8h</code>
        </pre>
        <p class="dim">
          The token stays in this browser tab: it is taken out of the address at once, is sent to this node alone, and
          ends with the tab.
        </p>
      </section>
    </main>
  );
}
