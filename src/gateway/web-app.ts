/**
 * Serves the built web app: the page itself always fresh, its hashed files for ever, all under a policy that lets the page
 * talk to this node and to nobody else.
 */
import fastifyStatic from '@fastify/static';
import type { FastifyInstance } from 'fastify';

/**
 * `style-src` has 'unsafe-inline' because the terminal writes its sizes and colours into style elements; scripts come from
 * files alone. `data:` is for the page's icon, which shows its state.
 */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const HEADERS = {
  'content-security-policy': CONTENT_SECURITY_POLICY,
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'cross-origin-opener-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
};

/** Vite puts what carries a hash in its name into this folder. */
const HASHED = /[\\/]assets[\\/]/;

/** @param folder of the build: `index.html`, `assets/`, and compressed variants beside each file */
export function addWebApp(app: FastifyInstance, folder: string): void {
  app.register(fastifyStatic, {
    root: folder,
    dotfiles: 'ignore',
    preCompressed: true,
    cacheControl: false,
    setHeaders(response, path) {
      for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
      response.setHeader('cache-control', HASHED.test(path) ? 'public, max-age=31536000, immutable' : 'no-cache');
    },
  });
}
