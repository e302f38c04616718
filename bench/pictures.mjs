/**
 * The curves of docs/performance.md as SVG, made from the results: lines with points, their names at their ends, readable on light
 * and dark pages alike.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, short } from './harness.mjs';

const FOLDER = join(ROOT, 'docs/img');
const WIDTH = 640;
const HEIGHT = 340;
/** Around the plot: room for the title above, numbers to the left, names of lines to the right. */
const EDGE = { top: 48, right: 150, bottom: 48, left: 60 };
const NAME_GAP = 16;

const STYLE = `text{font:13px system-ui,sans-serif;fill:#222}.title{font-weight:600;font-size:15px}.quiet{fill:#666}
.grid{stroke:#ddd;stroke-width:1}.line{fill:none;stroke-width:2.5}
.a{stroke:#0b63ce}.b{stroke:#b3261e}.c{stroke:#2e7d32}.d{stroke:#8a5a00}.e{stroke:#6a3fb5}.f{stroke:#00707a}.dot{stroke-width:0}
.a.dot,.a.name{fill:#0b63ce}.b.dot,.b.name{fill:#b3261e}.c.dot,.c.name{fill:#2e7d32}.d.dot,.d.name{fill:#8a5a00}.e.dot,.e.name{fill:#6a3fb5}.f.dot,.f.name{fill:#00707a}
.name{stroke:none}.paper{fill:#fff}
@media(prefers-color-scheme:dark){text{fill:#e6e6e6}.quiet{fill:#a5a5a5}.grid{stroke:#3a3f46}.paper{fill:#15181c}
.a{stroke:#6cb0ff}.b{stroke:#ff8a80}.c{stroke:#81c784}.d{stroke:#e0b050}.e{stroke:#b79cff}.f{stroke:#5cc8d2}
.a.dot,.a.name{fill:#6cb0ff}.b.dot,.b.name{fill:#ff8a80}.c.dot,.c.name{fill:#81c784}.d.dot,.d.name{fill:#e0b050}.e.dot,.e.name{fill:#b79cff}.f.dot,.f.name{fill:#5cc8d2}
.name{stroke:none}.dot{stroke-width:0}}`;

/** A round number at or above `value`, and the step of the grid below it. */
function scaleTo(value) {
  const magnitude = 10 ** Math.floor(Math.log10(value));
  const top = [1, 2, 3, 4, 5, 6, 8, 10].map((n) => n * magnitude).find((n) => n >= value);
  return {
    top,
    step: top / (top / magnitude > 5 ? top / magnitude / 2 : [3, 4, 5].includes(top / magnitude) ? top / magnitude : 4),
  };
}

const escaped = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;');

/** @param lines [{name, points: [[x, y]]}] @returns the picture as text */
export function drawLines({ title, across, up, lines }) {
  const points = lines.flatMap((line) => line.points);
  const xs = [...new Set(points.map(([x]) => x))].sort((a, b) => a - b);
  const { top, step } = scaleTo(Math.max(...points.map(([, y]) => y)));
  const [plotWidth, plotHeight] = [WIDTH - EDGE.left - EDGE.right, HEIGHT - EDGE.top - EDGE.bottom];
  const last = xs.at(-1);
  const place = ([x, y]) => [
    Number((EDGE.left + (x / last) * plotWidth).toFixed(1)),
    Number((EDGE.top + plotHeight * (1 - y / top)).toFixed(1)),
  ];
  const parts = [`<rect class="paper" width="${WIDTH}" height="${HEIGHT}"/>`];
  parts.push(`<text class="title" x="${EDGE.left}" y="22">${escaped(title)}</text>`);
  parts.push(`<text class="quiet" x="${EDGE.left}" y="40">${escaped(up)}</text>`);
  for (let y = 0; y <= top * 1.001; y += step) {
    const [, at] = place([0, y]);
    parts.push(`<path class="grid" d="M${EDGE.left} ${at}H${WIDTH - EDGE.right}"/>`);
    parts.push(`<text class="quiet" x="${EDGE.left - 8}" y="${at + 4}" text-anchor="end">${short(y)}</text>`);
  }
  let free = Number.NEGATIVE_INFINITY;
  for (const x of xs) {
    const [at] = place([x, 0]);
    if (at < free) continue;
    free = at + 34;
    parts.push(
      `<text class="quiet" x="${at}" y="${HEIGHT - EDGE.bottom + 18}" text-anchor="middle">${short(x)}</text>`,
    );
  }
  parts.push(
    `<text class="quiet" x="${EDGE.left + plotWidth / 2}" y="${HEIGHT - 10}" text-anchor="middle">${escaped(across)}</text>`,
  );
  for (const [n, { points: own }] of lines.entries()) {
    const letter = 'abcdef'[n % 6];
    const placed = own.map(place);
    parts.push(`<path class="line ${letter}" d="M${placed.map(([x, y]) => `${x} ${y}`).join('L')}"/>`);
    for (const [x, y] of placed) parts.push(`<circle class="dot ${letter}" cx="${x}" cy="${y}" r="3.5"/>`);
  }
  // Names beside the ends of their lines, from the top, each below the one before.
  let below = EDGE.top - NAME_GAP;
  const ends = lines.map(({ name, points: own }, n) => ({ name, n, at: place(own.at(-1)) }));
  for (const { name, n, at } of ends.sort((a, b) => a.at[1] - b.at[1])) {
    below = Math.max(at[1] + 4, below + NAME_GAP);
    parts.push(
      `<text class="name ${'abcdef'[n % 6]}" x="${WIDTH - EDGE.right + 10}" y="${below}">${escaped(name)}</text>`,
    );
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escaped(title)}"><style>${STYLE}</style>\n${parts.join('\n')}\n</svg>\n`;
}

const NAMES = {
  homing: 'Homing',
  relay: 'bare relay',
  sioRedis: 'Socket.IO',
  sioSharded: 'Socket.IO sharded',
  sioStreams: 'Socket.IO streams',
  bullmqRelay: 'BullMQ Relay',
};
const both = (curve, figure) =>
  ['homing', 'relay'].map((name) => ({
    name: NAMES[name],
    points: curve.map((point) => [point.at, figure(point[name])]),
  }));

const PICTURES = {
  'nodes.svg': {
    shows: 'CPU of nodes for a line, from one node to eight',
    draw: ({ 2: row }) => ({
      title: 'The same output over more nodes',
      across: 'nodes, 2,000 lines a second in all',
      up: 'CPU of all nodes for a line, µs',
      lines: both(row.curve, ({ cpuMicros }) => cpuMicros),
    }),
  },
  'latency.svg': {
    shows: 'From the program’s write to the client, by rate',
    draw: ({ 3: row }) => ({
      title: 'How long a line takes',
      across: 'lines a second, one node, 40 tabs',
      up: 'from the program’s write to the client, ms',
      lines: ['p50', 'p99'].flatMap((quantile) =>
        both(row.curve, (figures) => figures[quantile]).map(({ name, points }) => ({
          name: `${name} ${quantile}`,
          points,
        })),
      ),
    }),
  },
  'tabs.svg': {
    shows: 'Memory of a node by idle tabs',
    draw: ({ 6: row }) => ({
      title: 'Memory of a node',
      across: 'idle tabs',
      up: 'more than without them, MB',
      lines: Object.entries(row.figures).map(([name, [{ curve }]]) => ({
        name: NAMES[name],
        points: [[0, 0], ...curve.map(({ tabs, mb }) => [tabs, mb])],
      })),
    }),
  },
  'backlog.svg': {
    shows: 'CPU for a submit while commands wait',
    draw: ({ 12: row }) => ({
      title: 'Submitting while commands wait',
      across: 'commands that wait',
      up: 'CPU of node and Redis (bare: of client and Redis) for a submit, ms',
      lines: Object.entries({ homing: 'Homing', queue: 'bare queue.add' }).map(([name, words]) => ({
        name: words,
        points: row.figures[name][0].tenths.map(({ cpuMs }, n) => [((n + 1) * row.count) / 10, cpuMs]),
      })),
    }),
  },
  'cluster.svg': {
    shows: 'What the masters of a Cluster would carry',
    draw: ({ 10: row }) => ({
      title: 'What the masters of a Cluster would carry',
      across: 'masters',
      up: 'entries a second, from the CPU of the busiest for an entry',
      lines: [
        {
          name: 'Homing',
          points: Object.entries(row.figures).map(([name, [{ carries }]]) => [
            Number(name.slice('masters'.length)),
            carries,
          ]),
        },
      ],
    }),
  },
};

/** Makes those whose rows were measured. @returns all there may be, with what each shows */
export function drawPictures({ rows }) {
  mkdirSync(FOLDER, { recursive: true });
  return Object.entries(PICTURES).map(([file, { shows, draw }]) => {
    try {
      writeFileSync(join(FOLDER, file), drawLines(draw(rows)));
    } catch (error) {
      // Not measured yet, or by an older bench: the picture stays as it is.
      if (!(error instanceof TypeError)) throw error;
      console.log(`${file}: no results for it`);
    }
    return { file, title: shows };
  });
}
