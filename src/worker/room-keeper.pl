# A room keeper: makes rooms with a few calls of the kernel, where a chain of tools starts six programs, from a process of a few MB,
# which is copied in a fraction of the time that a worker takes. Every Debian and Ubuntu has a Perl; where none is found, rooms are
# made with those tools.
#
# Told a line, it makes a room and answers "room <pid of its init>", or "fault <words>"; later, when everything in that room is gone,
# "gone <pid>". At the end of its stdin, or when its parent dies, it ends, and the kernel ends its rooms with it.
#
# A room is a process in new pid and mount namespaces (and a user namespace, for who is not root). Its init starts one child, a
# standing shell, tells on REPORT how that ended ("exit <status as wait(2) has it>"), and reaps whoever else is handed to it, until
# it is killed.
#
# Arguments: "user" where a room needs a user namespace or "-", and what shall stand in each room.
# Every page that a copy of this process touches is copied too, and every file handle is pages: descriptors are bare numbers here.

use strict;
use warnings;
use POSIX ();

my ($user_namespace, @shell) = @ARGV;
my $machine = (POSIX::uname())[4];
my ($CLONE, $MOUNT, $PRCTL, $PIPE2) =
    $machine eq 'x86_64' ? (56, 165, 157, 293)
  : $machine =~ /^(aarch64|riscv64|loongarch64)$/ ? (220, 40, 167, 59)
  : die "the calls of $machine are not known\n";
die "not of 64 bits\n" if length(pack 'p', '') != 8;
my $flags = 0x20020000 | POSIX::SIGCHLD(); # CLONE_NEWPID, CLONE_NEWNS
$flags |= 0x10000000 if $user_namespace eq 'user';
my ($uid, $gid) = ($>, $) + 0);
my ($INPUT, $REPORT) = (3, 4); # SCRIPT_FD and REPORT_FD of process-launch.ts

# What whoever started the worker had left open is nobody's business here.
if (opendir my $open, '/proc/self/fd') {
    my @inherited = grep { /^\d+$/ && $_ > 2 && $_ != fileno $open } readdir $open;
    POSIX::close($_) for @inherited;
}
# Below 5 nothing of ours may be: there the shell's descriptors will stand.
my $null = POSIX::open('/dev/null', POSIX::O_RDWR()) // die "$!\n";
POSIX::dup2($null, $_) for $INPUT, $REPORT;
%ENV = ();
dies_with_parent();

my (%life, %dying); # by pid of the init
while (1) {
    my $heard = '';
    vec($heard, $_, 1) = 1 for 0, values %life;
    # An init whose end of the pipe was closed is about to be gone.
    select $heard, undef, undef, %dying ? 0.002 : undef;
    for my $init (keys %life) {
        next unless vec $heard, $life{$init}, 1;
        POSIX::close(delete $life{$init});
        $dying{$init} = 1;
    }
    for my $init (keys %dying) {
        next if waitpid($init, POSIX::WNOHANG()) == 0;
        delete $dying{$init};
        say_line("gone $init");
    }
    next unless vec $heard, 0, 1;
    (POSIX::read(0, my $wishes, 4096) || 0) > 0 or last;
    say_line(make()) for 1 .. $wishes =~ tr/\n//;
}

sub say_line { POSIX::write(1, "$_[0]\n", 1 + length $_[0]) or exit 0 }

# SIGKILL for whoever calls it, when the parent dies; works on an init too.
sub dies_with_parent { syscall $PRCTL, 1, POSIX::SIGKILL(), 0, 0, 0 }

# Both ends, neither of which a program inherits.
sub make_pipe {
    my $fds = pack 'i2', 0, 0;
    syscall($PIPE2, $fds, 0x80000) == 0 or die "pipe: $!\n"; # O_CLOEXEC
    return unpack 'i2', $fds;
}

sub make {
    my ($life, $init_end) = eval { make_pipe() } or return "fault $@";
    my $init = syscall $CLONE, $flags, 0, 0, 0, 0;
    my $why = "clone: $!";
    if ($init == 0) {
        eval { be_init($init_end) };
        POSIX::write($init_end, $@, length $@);
        POSIX::_exit(1);
    }
    POSIX::close($init_end);
    if ($init > 0) {
        $life{$init} = $life;
        POSIX::read($life, my $word, 500);
        return "room $init" if ($word // '') eq "ready\n";
        chomp($why = $word // '');
    }
    else { POSIX::close($life) }
    return 'fault ' . ($why || 'it ended at once');
}

sub be_init {
    my ($life) = @_;
    dies_with_parent();
    if ($user_namespace eq 'user') {
        put('/proc/self/setgroups', 'deny');
        put('/proc/self/uid_map', "$uid $uid 1");
        put('/proc/self/gid_map', "$gid $gid 1");
    }
    mount_to('none', '/', '', 0x44000);    # MS_PRIVATE, MS_REC: what is mounted here stays here
    mount_to('proc', '/proc', 'proc', 14); # MS_NOSUID, MS_NODEV, MS_NOEXEC
    my ($script, $script_end) = make_pipe();
    my ($out_end, $out, $err_end, $err, $report_end, $report, $input, $input_end) = map { make_pipe() } 1 .. 4;
    # Before the shell is there, so that it has them from its first moment: the worker opens them by /proc.
    POSIX::dup2($script, 0);
    POSIX::dup2($out, 1);
    POSIX::dup2($err, 2);
    POSIX::dup2($input, $INPUT);
    POSIX::dup2($report, $REPORT);
    my $shell = fork // die "fork: $!\n";
    if ($shell == 0) {
        POSIX::setsid();
        exec { $shell[0] } @shell or POSIX::_exit(127);
    }
    POSIX::dup2($null, $_) for 0 .. 2, $INPUT;
    # Not the writing end of its script, without which the shell would end; a room that its worker leaves is killed.
    POSIX::close($_) for $script, $out_end, $out, $err_end, $err, $report_end, $report, $input, $input_end;
    POSIX::write($life, "ready\n", 6);
    $SIG{PIPE} = 'IGNORE';
    $SIG{CHLD} = sub { };
    while (1) {
        my $pid = waitpid -1, 0;
        if ($pid == $shell) { POSIX::write($REPORT, "exit $?\n", length "exit $?\n") }
        elsif ($pid < 0) { select undef, undef, undef, 5 }
    }
}

sub put {
    my ($file, $text) = @_;
    open my $out, '>', $file or die "$file: $!\n";
    syswrite $out, $text or die "$file: $!\n";
}

sub mount_to {
    my ($source, $target, $type, $mount_flags) = @_;
    syscall($MOUNT, $source, $target, $type, $mount_flags, 0) == 0 or die "mount $target: $!\n";
}
