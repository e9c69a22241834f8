/* test_http_watch.c - the end of idle connections, on pairs of sockets. */
#include <criterion/criterion.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/watch.h"

/* Nothing more is read from an idle connection, but a request that was read a moment before can be
 * answered; one that waits to be read, or that is being answered, is left alone. */
Test(http_watch, idle_connections_end_on_one_side) {
    enum {
        IDLE,
        UNREAD,
        ASKED,
        COUNT
    };
    struct watched watched[COUNT] = {0};
    int pairs[COUNT][2]; /* ours, the client's */
    char byte = 0;
    struct watch *watch = watch_start();
    cr_assert_not_null(watch);
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]), 0);
        watch_add(watch, &watched[i], pairs[i][0]);
    }
    cr_assert_eq(send(pairs[UNREAD][1], "u", 1, 0), 1);
    atomic_store(&watched[ASKED].asked, true);
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
