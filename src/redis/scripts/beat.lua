#!lua flags=allow-oom
-- Says that a process is alive. Judges compare whether the text changed during their own lease, never its time (R4).
-- KEYS[1] string of one node or worker
-- ARGV[1] text, another one with each beat  [2] how long it stays, ms
-- Returns 1
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
