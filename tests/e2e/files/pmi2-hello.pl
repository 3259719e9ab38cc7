# A parallel hello without an MPI library: speaks PMI-2 with Slurm over the descriptor that every task inherits.
# Each task publishes its hostname, waits for all, reads those of the others, and says what it has seen.
use strict;
use warnings;

open(my $slurm, '+<&=', $ENV{PMI_FD} // die "there is no PMI_FD: srun was not called with --mpi=pmi2\n") or die $!;

sub take {    # exactly that many bytes
    my ($wanted) = @_;
    my $text = '';
    while (length($text) < $wanted) {
        sysread($slurm, $text, $wanted - length($text), length($text)) or die "Slurm closed the connection\n";
    }
    return $text;
}

sub ask {     # one command and the fields of its answer
    my ($command, @fields) = @_;
    my $body = join('', map { "$_;" } "cmd=$command", @fields);
    syswrite($slurm, sprintf('%6d', length $body) . $body) or die $!;
    my %answer = map { split /=/, $_, 2 } split /;/, take(take(6));
    die "$command: " . ($answer{errmsg} // 'failed') . "\n" if ($answer{rc} // 0) != 0;
    return %answer;
}

syswrite($slurm, "cmd=init pmi_version=2 pmi_subversion=0\n") or die $!;
my $line = '';
$line .= take(1) until $line =~ /\n$/;
$line =~ /rc=0/ or die "Slurm refused: $line";

my %job = ask('fullinit', "pmijobid=$ENV{PMI_JOBID}", "pmirank=$ENV{PMI_RANK}", 'threaded=FALSE');
chomp(my $host = `hostname`);
ask('kvs-put', "key=host-$job{rank}", "value=$host");
ask('kvs-fence');
my @hosts = map { my %found = ask('kvs-get', "jobid=$ENV{PMI_JOBID}", 'srcid=-1', "key=host-$_"); $found{value} }
  0 .. $job{size} - 1;
print "rank $job{rank} of $job{size} on $host sees @hosts\n";
ask('finalize');
