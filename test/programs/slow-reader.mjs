// Reads nothing of its stdin until SIGUSR2, then all of it, and prints how many bytes that were.
process.once('SIGUSR2', () => {
  let total = 0;
  process.stdin.on('data', (chunk) => {
    total += chunk.length;
  });
  process.stdin.on('end', () => {
    console.log(total);
    clearInterval(waiting);
  });
});
const waiting = setInterval(() => {}, 1_000);
console.log('ready');
