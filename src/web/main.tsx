/** The web app: everything begins here, and nothing before it. */
import { render } from 'preact';
import { createApp } from './state/app.js';
import { createPageMemory } from './state/page-memory.js';
import { PageView } from './views/page.js';

const app = createApp(window, createPageMemory(sessionStorage, localStorage));
const root = document.getElementById('app');
if (root !== null) {
  root.textContent = '';
  render(<PageView app={app} />, root);
}
// The session is kept: a reload, or the next page of this tab, resumes it.
window.addEventListener('pagehide', () => app.close());
