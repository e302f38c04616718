/**
 * While nodes are being replaced, a page of one version may ask a node of another for its parts, which that one does not have.
 * Then the page says so and loads itself again: five times, later each time, so that a part that is really missing makes no
 * loop. It has no hash in its name, comes before everything else, and needs nothing.
 */
(() => {
  const DELAYS_MS = [300, 1_000, 2_000, 4_000, 8_000];
  const KEY = 'homing-web:reloads';
  /** Missing again after so long is another deploy. */
  const FORGET_MS = 60_000;
  let told = false;

  /** How often it was tried already; without a storage once, for nobody would count. */
  function count() {
    try {
      const { times = 0, atMs = 0 } = JSON.parse(sessionStorage.getItem(KEY) ?? '{}');
      const now = Date.now();
      const tried = now - atMs < FORGET_MS ? times : 0;
      sessionStorage.setItem(KEY, JSON.stringify({ times: tried + 1, atMs: now }));
      return tried;
    } catch {
      return DELAYS_MS.length;
    }
  }

  /** @param {string} sentence @param {boolean} button */
  function say(sentence, button) {
    const place = document.createElement('p');
    place.setAttribute('role', 'status');
    place.setAttribute(
      'style',
      'font: 16px system-ui, sans-serif; margin: 3rem auto; max-width: 40rem; padding: 0 1rem',
    );
    place.textContent = sentence;
    if (button) {
      const again = document.createElement('button');
      again.textContent = 'Load again';
      again.setAttribute('style', 'font: inherit; margin-left: 0.5rem');
      again.onclick = () => location.reload();
      place.append(again);
    }
    document.body.replaceChildren(place);
  }

  /** @param {boolean} isScript without its styles alone the page still works */
  function missing(isScript) {
    if (told) return;
    const delayMs = DELAYS_MS[count()];
    told = delayMs !== undefined || isScript;
    if (delayMs !== undefined) {
      say('Homing was just updated. Loading the new version …', false);
      setTimeout(() => location.reload(), delayMs);
    } else if (isScript) {
      say('A part of this page could not be loaded. Commands go on running, and their output is kept.', true);
    }
  }

  // Errors of loading do not bubble.
  addEventListener(
    'error',
    ({ target }) => {
      const isScript = target instanceof HTMLScriptElement;
      if (!isScript && !(target instanceof HTMLLinkElement && target.rel === 'stylesheet')) return;
      // A style may be missing before there is anything to write on.
      if (document.body === null) addEventListener('DOMContentLoaded', () => missing(isScript));
      else missing(isScript);
    },
    true,
  );
})();
