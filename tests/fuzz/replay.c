/*
 * replay.c - runs a fuzz target on files and on all files of folders, without libFuzzer: on each as
 * it is, and on TEST_MUTATIONS changed copies (200 if it is not set); TEST_SEED chooses others. If
 * an input ends the process, the last line on standard error names it.
 */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "support/count.h"
#include "support/json.h"
#include "support/rng.h"
#include "support/scale.h"

enum {
    LONGEST = 8192 /* bytes of an input that is changed; a longer one would take most of the time */
};

static char current[4096]; /* name of the current input, for a process that is about to end */
static size_t changes;     /* copies of each input */
static uint64_t seed;

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

/* Texts that some part of the service treats specially. */
/* clang-format off */
static const char *const words[] = {
    "[", "]", "{", "}", ",", ":", "\"", "\\", "\\u", "-", "e", "E9", ".", "0", "1e999", "-0",
    "1e39", "1e308", "5e-324", "2147483648", "4294967296", "9007199254740993",
    "18446744073709551616",
    "null", "true", "false", "NaN", "-Infinity", "[]", "[[]]", "[[[[1]]]]", "{}", "\"\"", "\"X\":",
    "\"Q\":", "\"heads\":", "\"dtype\":\"float64\",", "\"timeout\":1e-9,", "\r\n", "\xFF", "\xC3",
    "\xF0\x9F\x98\x80", "\xEF\xBB\xBF", "\t", "\n", "\x7F",
};
/* clang-format on */

/* Puts `count` bytes in place of the `gone` bytes at `at`. Returns the new size. */
static size_t replace(char *bytes, size_t size, size_t at, size_t gone, const char *other,
                      size_t count) {
    memmove(bytes + at + count, bytes + at + gone, size - at - gone);
    memcpy(bytes + at, other, count);
    return size - gone + count;
}

/* Changes one place. There is room for 64 more bytes. Returns the new size. */
static size_t change(struct rng *rng, char *bytes, size_t size) {
    char copy[64];
    const size_t at = size > 0 ? rng_between(rng, 0, size - 1) : 0;
    const size_t most = size - at < sizeof copy ? size - at : sizeof copy;
    const size_t some = most > 0 ? rng_between(rng, 1, most) : 0;
    const char *word = words[rng_between(rng, 0, COUNT(words) - 1)];
    memcpy(copy, bytes + at, some);
    switch (rng_between(rng, 0, 7)) {
    case 0: /* a bit */
        bytes[at] = (char)(bytes[at] ^ (1 << rng_between(rng, 0, 7)));
        return size;
    case 1:
        bytes[at] = (char)rng_between(rng, 0, 255);
        return size;
    case 2:
        return replace(bytes, size, at, some, "", 0);
    case 3:
        return replace(bytes, size, at, 0, word, strlen(word));
    case 4:
        return replace(bytes, size, at, some < 8 ? some : 8, word, strlen(word));
    case 5: /* repeat a part */
        return replace(bytes, size, at, 0, copy, some);
    case 6: /* copy a part to another place */
        return replace(bytes, size, rng_between(rng, 0, size), 0, copy, some);
    default:
        return rng_chance(rng, 4) ? at : size; /* cut the end */
    }
}

/* The block is exactly as long as the input, so a sanitizer sees a read beyond it. */
static void run_exactly(const char *bytes, size_t size) {
    uint8_t *exact = malloc(size > 0 ? size : 1);
    if (exact == NULL) {
        abort();
    }
    memcpy(exact, bytes, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

/* Runs the file that `current` names, and copies of it in which one to four places are changed.
 * Returns 1, or -1 if the file cannot be read. */
static int run_file(void) {
    static char copy[LONGEST + 4 * 64];
    size_t size = 0;
    char *bytes = json_read_file(current, &size);
    const size_t length = strlen(current);
    if (bytes == NULL) {
        fprintf(stderr, "replay: cannot read %s\n", current);
        return -1;
    }
    run_exactly(bytes, size);
    struct rng rng = {seed};
    for (size_t i = 0; i < changes && size <= LONGEST; i++) {
        size_t changed = size;
        snprintf(current + length, sizeof current - length, ", change %zu", i);
        memcpy(copy, bytes, size);
        for (size_t left = rng_between(&rng, 1, 4); left > 0; left--) {
            changed = change(&rng, copy, changed);
        }
        run_exactly(copy, changed);
    }
    free(bytes);
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
    for (size_t i = 0; i < COUNT(fatal); i++) {
        signal(fatal[i], on_signal);
    }
    if (__sanitizer_set_death_callback != NULL) {
        __sanitizer_set_death_callback(name_current);
    }
    const char *wanted = getenv("TEST_MUTATIONS"), *other = getenv("TEST_SEED");
    int total = 0;
    changes = wanted != NULL ? strtoul(wanted, NULL, 10) : test_scale(200);
    seed = other != NULL ? strtoull(other, NULL, 10) : 1;
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
    printf("%d inputs, each with %zu changed copies\n", total, changes);
    return total > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
