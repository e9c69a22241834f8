/*
 * test_runner.c - what concerns the process that runs the tests. Criterion starts a process for
 * each of them; its own, with some two hundred tests, leaves 48 bytes of its own behind, which
 * LeakSanitizer is not to take for ours. The processes of the tests are looked at as ever.
 */
#include <stdlib.h>

/* LeakSanitizer asks it at the end, from its own library. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

static int is_runner;

__attribute__((constructor)) static void find_out(void) {
    is_runner = getenv("BXFI_MAP") == NULL; /* set for the processes of tests */
}

int __lsan_is_turned_off(void) {
    return is_runner;
}
