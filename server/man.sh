#!/bin/sh
# man.sh DAEMON prints the manual page attentiond(1). The sections from SYNOPSIS to ENVIRONMENT are the text of
# `DAEMON --help`, and the others are written here. What --help says of the machine that it runs on is left out, so that
# the page is the same everywhere.
set -eu

help=$("$1" --help)
version=$("$1" --version)

cat <<END
.TH ATTENTIOND 1 "" "$version" "User Commands"
.SH NAME
attentiond \- attention as an HTTP service
END

printf '%s\n' "$help" | awk '
{ gsub(/\\/, "\\e"); gsub(/-/, "\\-") }
/^$/ { next }
/^usage: / {
    sub(/^usage: attentiond /, "")
    print ".SH SYNOPSIS\n.B attentiond\n" $0 "\n.SH DESCRIPTION"
    next
}
/^  [^ ]/ { # an option and its meaning
    if (!options++)
        print ".SH OPTIONS"
    flag = $1
    sub(/^ *[^ ]+ +/, "")
    in_words = /the default is/
    print ".TP\n.B " flag
}
/^   / { # its variable, default and range
    sub(/^ +/, ".br\n")
    if (in_words) # the number after the words is that of this machine
        sub(/ default [0-9]+,/, "")
}
/^The environment variable / { print ".SH ENVIRONMENT" }
/^This machine / { exit }
{ print }'

cat <<'END'
.SH FILES
.TP
.I /etc/default/attentiond
The systemd unit reads environment variables from this file, one on each line.
.TP
.I /etc/systemd/system/attentiond.service.d/
.B systemctl edit attentiond
makes files here, which change the unit. The comments of the unit have examples;
.B systemctl cat attentiond
shows them.
.SH SIGNALS
.TP
.BR SIGTERM ", " SIGINT
The daemon answers its open requests and ends. A second signal ends it at once.
.TP
.B SIGHUP
The daemon opens the log file again and reads the keys and the certificate again.
.SH EXIT STATUS
.TP
.B 0
The daemon was stopped by SIGTERM or SIGINT, or
.B \-\-health\-check
found a daemon that is alive.
.TP
.B 1
The daemon cannot serve, it stopped before a computation had ended, or
.B \-\-health\-check
found no daemon that is alive.
.TP
.B 2
An option or ATTENTION_ISA is wrong.
.SH SEE ALSO
.BR curl (1),
.BR systemctl (1),
.BR systemd.exec (5)
.PP
The daemon serves the reference of its API at
.IR /docs .
END
