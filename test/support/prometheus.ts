/** A real Prometheus of one test's own, with the alert rules of `deploy/`: looks every half second. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stablePort } from './ports.js';
import { until } from './wait.js';

const RULES = fileURLToPath(new URL('../../deploy/prometheus/alerts.yml', import.meta.url));

export interface FiredAlert {
  readonly state: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

export async function startPrometheus(options: {
  /** Addresses, by the name of their job. */
  readonly jobs: Readonly<Record<string, readonly string[]>>;
  readonly token: string;
  rules(text: string): string;
}): Promise<AsyncDisposable & { alerts(): Promise<readonly FiredAlert[]> }> {
  const folder = await mkdtemp(join(tmpdir(), 'homing-prometheus-'));
  const port = await stablePort();
  const settings = {
    global: { scrape_interval: '500ms', evaluation_interval: '500ms' },
    rule_files: ['alerts.yml'],
    scrape_configs: Object.entries(options.jobs).map(([name, urls]) => ({
      job_name: name,
      authorization: { credentials: options.token },
      static_configs: [{ targets: urls.map((url) => new URL(url).host) }],
    })),
  };
  await writeFile(join(folder, 'prometheus.yml'), JSON.stringify(settings));
  await writeFile(join(folder, 'alerts.yml'), options.rules(await readFile(RULES, 'utf8')));
  const args = [`--config.file=${folder}/prometheus.yml`, `--storage.tsdb.path=${folder}/data`];
  const child = spawn('prometheus', [...args, `--web.listen-address=127.0.0.1:${port}`], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-10_000);
  });
  const gone = once(child, 'exit');
  child.on('error', (error) => {
    said += `prometheus is missing (apt-get install prometheus): ${error.message}`;
  });
  const killWithTest = () => void child.kill('SIGKILL');
  process.once('exit', killWithTest);

  const ask = async (path: string) => (await fetch(`http://127.0.0.1:${port}${path}`)).json();
  async function dispose(): Promise<void> {
    process.off('exit', killWithTest);
    if (child.pid !== undefined && child.exitCode === null) {
      child.kill('SIGKILL');
      await gone;
    }
    await rm(folder, { recursive: true, force: true });
  }
  try {
    await until('a Prometheus that answers', async () =>
      fetch(`http://127.0.0.1:${port}/-/ready`).then(
        ({ ok }) => ok,
        () => false,
      ),
    );
  } catch (error) {
    await dispose();
    throw new Error(`${error}; it said: ${said}`);
  }
  return {
    alerts: async () => (await ask('/api/v1/alerts')).data.alerts,
    [Symbol.asyncDispose]: dispose,
  };
}
