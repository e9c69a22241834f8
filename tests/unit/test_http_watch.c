/* test_http_watch.c tests how the watch ends idle and slow connections, on pairs of sockets. */
#include <criterion/criterion.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "http/watch.h"
#include "support/wait.h"

TestSuite(http_watch, .timeout = 60);

/* Nothing more is read from an idle connection, but a request that was read a moment before can
 * still be answered. A connection with an unread byte or a request in work is left alone. */
Test(http_watch, idle_connections_end_on_one_side) {
    enum {
        IDLE,
        UNREAD,
        BUSY,
        COUNT
    };
    struct watched watched[COUNT] = {0};
    int pairs[COUNT][2]; /* the end of the server, the end of the client */
    char byte = 0;
    struct watch *watch = watch_start();
    cr_assert_not_null(watch);
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]), 0);
        watch_add(watch, &watched[i], pairs[i][0]);
    }
    cr_assert_eq(send(pairs[UNREAD][1], "u", 1, 0), 1);
    atomic_store(&watched[BUSY].busy, true);
    watch_close_idle(watch);
    for (int i = 0; i < COUNT; i++) {
        const ssize_t got = recv(pairs[i][0], &byte, 1, MSG_DONTWAIT);
        cr_expect_eq(got, i == IDLE ? 0 : i == UNREAD ? 1 : -1, "%d: %zd", i, got);
        cr_expect_eq(send(pairs[i][0], "a", 1, MSG_NOSIGNAL), 1, "%d", i);
        cr_expect_eq(recv(pairs[i][1], &byte, 1, MSG_DONTWAIT), 1, "%d", i);
    }
    for (int i = 0; i < COUNT; i++) {
        watch_remove(watch, &watched[i]);
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
    watch_stop(watch);
}

static bool was_cut(int fd) {
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/* A client whose bytes the server has not read is not late. It is cut off once they are read, or if
 * they are never read. */
Test(http_watch, unread_bytes_put_off_the_deadline) {
    enum {
        SILENT,
        READ_LATER,
        NEVER_READ,
        COUNT
    };
    struct watched watched[COUNT] = {0};
    int pairs[COUNT][2]; /* the end of the server, the end of the client */
    char byte;
    struct watch *watch = watch_start();
    cr_assert_not_null(watch);
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]), 0);
        cr_assert(i == SILENT || send(pairs[i][1], "u", 1, 0) == 1);
        watch_until(&watched[i], 1); /* long ago */
        watch_add(watch, &watched[i], pairs[i][0]);
    }
    WAIT_UNTIL(was_cut(pairs[SILENT][1]));
    cr_assert_eq(recv(pairs[READ_LATER][0], &byte, 1, 0), 1);
    WAIT_UNTIL(was_cut(pairs[READ_LATER][1]));
    WAIT_UNTIL(was_cut(pairs[NEVER_READ][1]));
    for (int i = 0; i < COUNT; i++) {
        watch_remove(watch, &watched[i]);
        cr_expect_eq(watched[i].late > 0, i != SILENT, "%d was put off %u times", i,
                     watched[i].late);
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
    watch_stop(watch);
}

/* A client that takes nothing is cut off when its time is over. Its time stands still while the
 * server makes the next bytes, and goes on after that. */
Test(http_watch, time_stands_still_while_bytes_are_made) {
    enum {
        MS = 200 /* two looks of the watch */
    };
    const struct timespec longer = {.tv_nsec = 3L * MS * 1000000};
    struct watched paused = {0}, waited_for = {0};
    int ours[2], theirs[2];
    struct watch *watch = watch_start();
    cr_assert_not_null(watch);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ours), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, theirs), 0);
    watch_add(watch, &paused, ours[0]);
    watch_add(watch, &waited_for, theirs[0]);
    watch_send(&paused, MS, 0);
    watch_send(&waited_for, MS, 0);
    const int64_t begun = atomic_load(&paused.begun), took = atomic_load(&paused.took);
    watch_pause(&paused);
    nanosleep(&longer, NULL);
    WAIT_UNTIL(was_cut(theirs[1]));
    cr_expect_not(was_cut(ours[1]));
    watch_resume(&paused);
    cr_expect_geq(atomic_load(&paused.begun), begun + 3 * MS);
    cr_expect_geq(atomic_load(&paused.took), took + 3 * MS);
    WAIT_UNTIL(was_cut(ours[1]));
    watch_remove(watch, &paused);
    watch_remove(watch, &waited_for);
    close(ours[0]);
    close(ours[1]);
    close(theirs[0]);
    close(theirs[1]);
    watch_stop(watch);
}

/* Asking the kernel takes time, so short responses in a row count as not taken until they are more
 * than 10 KiB together. Then the kernel is asked, which says here that the client has taken all. */
Test(http_watch, short_responses_count_until_the_kernel_is_asked) {
    enum {
        BYTES = 1000
    };
    struct watched watched = {0};
    int pair[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    watched.fd = pair[0];
    unsigned asked = 0, most = 0;
    for (unsigned i = 0, sum = 0; i < 40; i++) {
        watch_send(&watched, 60000, BYTES);
        sum = atomic_load(&watched.queued) == BYTES ? 1 : sum + 1;
        asked += sum == 1;
        most = sum > most ? sum : most;
        cr_expect_geq(atomic_load(&watched.queued), (uint64_t)sum * BYTES, "response %u", i);
    }
    cr_expect_gt(asked, 2);
    cr_expect(most > 3 && most <= 11, "%u responses without a question", most);
    close(pair[0]);
    close(pair[1]);
}

/* A client that has ended its side is cut off only after a second in which there was nothing but
 * this end. Until then the server may not have read what the client sent before. */
Test(http_watch, an_end_is_noted_after_a_while) {
    struct watched watched = {0};
    int pair[2];
    struct watch *watch = watch_start();
    cr_assert_not_null(watch);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    watch_add(watch, &watched, pair[0]);
    shutdown(pair[1], SHUT_WR);
    WAIT_UNTIL(was_cut(pair[1]));
    watch_remove(watch, &watched);
    cr_expect_geq(watched.gone, 10, "looks at which there was nothing but the end");
    close(pair[0]);
    close(pair[1]);
    watch_stop(watch);
}
