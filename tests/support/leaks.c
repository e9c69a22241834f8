/*
 * leaks.c - decides which processes LeakSanitizer checks. Criterion starts a process for each test.
 * The process that starts them leaks some hundred bytes of Criterion, so it is not checked.
 */
#include <stdlib.h>

/* LeakSanitizer calls this function from its own library at the end of a process. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void) {
    return getenv("BXFI_MAP") == NULL; /* Criterion sets it for the processes of tests */
}
