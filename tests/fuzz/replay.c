/*
 * replay.c - runs a fuzz target on files and on all files of folders, without libFuzzer. If a file
 * ends the process, the last line on standard error names it.
 */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "support/json.h"

static char current[4096]; /* path of the current file, for a process that is about to end */

static void name_current(void) {
    static const char text[] = "\nreplay: ended at ";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    (void)!write(STDERR_FILENO, current, strlen(current));
    (void)!write(STDERR_FILENO, "\n", 1);
}

static void on_signal(int number) {
    name_current();
    signal(number, SIG_DFL);
    raise(number);
}

/* The sanitizers have this function. They end the process without a signal. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static int run_file(void) {
    size_t size = 0;
    char *bytes = json_read_file(current, &size);
    /* The block is exactly as long as the file, so a sanitizer sees a read beyond it. */
    uint8_t *exact = bytes == NULL ? NULL : malloc(size > 0 ? size : 1);
    if (exact == NULL) {
        free(bytes);
        fprintf(stderr, "replay: cannot read %s\n", current);
        return -1;
    }
    memcpy(exact, bytes, size);
    free(bytes);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 1;
}

/* Returns how many files were run, or -1. */
static int run_folder(DIR *folder, const char *path) {
    int files = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(current, sizeof current, "%s/%s", path, entry->d_name);
        if (run_file() < 0) {
            return -1;
        }
        files++;
    }
    return files;
}

int main(int argc, char **argv) {
    static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) {
        signal(fatal[i], on_signal);
    }
    if (__sanitizer_set_death_callback != NULL) {
        __sanitizer_set_death_callback(name_current);
    }
    int total = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        snprintf(current, sizeof current, "%s", argv[i]);
        const int files = folder == NULL ? run_file() : run_folder(folder, argv[i]);
        if (folder != NULL) {
            closedir(folder);
        }
        if (files < 0) {
            return EXIT_FAILURE;
        }
        total += files;
    }
    printf("%d inputs\n", total);
    return total > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
