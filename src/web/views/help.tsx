/** The keys of this page. */
import { usePage } from './context.js';
import { Dialog } from './dialog.js';
import { useStore } from './use-store.js';

export const KEYS: readonly (readonly [string, string])[] = [
  ['n', 'Write a command'],
  ['/', 'Find a command in the list'],
  ['j  k', 'Next and previous command'],
  ['t', 'Terminal'],
  ['w', 'Who gets what'],
  ['i', 'Notices'],
  ['x', 'End the command'],
  ['p', 'Pause the output, go on'],
  ['f', 'Follow the output'],
  ['c', 'Copy the selection, or everything'],
  ['?', 'This list'],
];

const ALWAYS: readonly (readonly [string, string])[] = [
  ['Enter', 'Run what is written'],
  ['Shift+Enter', 'A new line in it'],
  ['↑  ↓', 'Earlier and later commands, in the box and in the list'],
  ['Ctrl+F', 'Find in the output'],
  ['Alt+1 … 9', 'Another conversation'],
  ['Shift+Esc', 'Leave a terminal that takes input'],
  ['Esc', 'Close what is open'],
];

export function HelpDialog({ onClose }: { readonly onClose: () => void }) {
  const { app } = usePage();
  const taste = useStore(app.store, (state) => state.taste);
  return (
    <Dialog title="Keys" onClose={onClose}>
      <div class="keys">
        <Keys title="Everywhere" keys={ALWAYS} />
        <Keys title="Outside of text fields" keys={KEYS} />
      </div>
      <label class="check">
        <input
          type="checkbox"
          checked={taste.singleKeys}
          onChange={(event) => app.setTaste({ singleKeys: event.currentTarget.checked })}
        />
        <span>Keys of one letter are on</span>
      </label>
      <label class="check">
        <input
          type="checkbox"
          checked={taste.screenReader}
          onChange={(event) => app.setTaste({ screenReader: event.currentTarget.checked })}
        />
        <span>Terminals for screen readers (slower with much output)</span>
      </label>
    </Dialog>
  );
}

function Keys({ title, keys }: { readonly title: string; readonly keys: typeof KEYS }) {
  return (
    <div>
      <h3>{title}</h3>
      <dl>
        {keys.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
