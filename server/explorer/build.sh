#!/bin/sh
# build.sh FOLDER makes FOLDER, which has the files that the daemon serves to browsers:
#   index.html, docs.html, openapi.yaml, openapi.json and llms.txt;
#   assets/, the scripts and styles that the pages name, and the trained model. A hash of the content is part of the name
#   of each file;
#   NAME.gz and NAME.br beside each file NAME. They are empty if they are not shorter than NAME;
#   assets.inc, a list of all files for server/api/pages/embed.S and server/api/pages/assets.c.
# The script needs esbuild, gzip and brotli. The same sources and the same programs give the same bytes.
#
# To add a file for browsers: put it into server/explorer/src/. A script or style there imports it, or a page names it
# as "NAME.js" or "NAME.css"; this script replaces that name. The names of the scripts that only a script loads
# (worker.js, files.js, layers.js, compare.js, lines.js, curve.js, story.js, outputsworker.js, docsuse.js) are defined
# here, and so is that of the trained model. The HTML that a script puts into the page, and its tables and
# templates, are in src/parts/; the script imports them. A style of the explorer goes into src/style/, with a line in style.css; src/style/shared.css has
# what several parts have in common. tests/api/test_assets.c fetches whatever the pages name.
set -eu
export LC_ALL=C

src=$(realpath "$(dirname "$0")")/src
mkdir -p "$1"
old=$(realpath "$1")
new=$old.new
rm -rf "$new"
mkdir -p "$new/assets"
cp "$src/../../../openapi.yaml" "$src/openapi.json" "$src/llms.txt" "$new"
cd "$new"

hash() { # FILE: prints 64 bits of the SHA-256 of FILE
    sha256sum "$1" | cut -c 1-16
}

size() { # FILE: prints how many bytes FILE has
    wc -c <"$1"
}

# The page computes what the layers of the trained model do not: it needs the words and their vectors.
model=$src/../../models/story.safetensors
story=story-$(hash "$model").safetensors
cp "$model" "assets/$story"
worker=
files=
layers=
compare=
linear=
outputs=
lines=
curve=
storyview=
docsuse=
bundle() { # NAME: makes assets/STEM-HASH.SUFFIX of src/STEM.SUFFIX and prints the name with the hash
    esbuild "$src/$1" --outfile="$1" --define:WORKER_NAME="\"$worker\"" --define:FILES_NAME="\"$files\"" \
        --define:LAYERS_NAME="\"$layers\"" --define:COMPARE_NAME="\"$compare\"" --define:OUTPUTS_NAME="\"$outputs\"" \
        --define:LINEAR_NAME="\"$linear\"" --define:LINES_NAME="\"$lines\"" --define:CURVE_NAME="\"$curve\"" \
        --define:STORY_NAME="\"$story\"" --define:STORYVIEW_NAME="\"$storyview\"" \
        --define:DOCSUSE_NAME="\"$docsuse\"" \
        --bundle --loader:.html=text --minify --format=esm --target=esnext --legal-comments=none --log-level=warning
    name=${1%.*}-$(hash "$1").${1##*.}
    mv "$1" "assets/$name"
    echo "$name"
}

# The pages get the new names: "main.js" becomes "assets/main-HASH.js". Only main.js names the script of the worker and
# the scripts that it loads when they are needed: with the first file that is not JSON, for stored layers, for attention
# without softmax, for lines, for the curve of softmax, for the trained model, and for comparisons. Only compare.js names
# the script of its worker, and only docs.js names docsuse.js.
worker=$(bundle worker.js)
files=$(bundle files.js)
layers=$(bundle layers.js)
outputs=$(bundle outputsworker.js)
linear=$(bundle linear.js)
lines=$(bundle lines.js)
curve=$(bundle curve.js)
storyview=$(bundle story.js)
compare=$(bundle compare.js)
docsuse=$(bundle docsuse.js)
for name in $(grep -Eoh '"[a-z]+\.(js|css)"' "$src"/*.html | tr -d '"' | sort -u); do
    bundled=$(bundle "$name")
    echo "s|\"$name\"|\"assets/$bundled\"|g"
done >names.sed
for page in "$src"/*.html; do
    sed -f names.sed "$page" >"${page##*/}"
done
rm names.sed

# A file that has not changed keeps its compressed forms, because compressing takes most of the time.
number=0
for file in *.html openapi.* llms.txt assets/*; do
    if cmp -s "$file" "$old/$file" && [ -e "$old/$file.gz" ] && [ -e "$old/$file.br" ]; then
        mv "$old/$file.gz" "$old/$file.br" "${file%"${file##*/}"}./"
    else
        gzip -9nc "$file" >"$file.gz"
        brotli -c "$file" >"$file.br"
        for form in "$file.gz" "$file.br"; do
            [ "$(size "$form")" -lt "$(size "$file")" ] || : >"$form"
        done
    fi
    immutable=false
    case $file in assets/*) immutable=true ;; esac
    case $file in
    *.css) type='text/css; charset=utf-8' ;;
    *.html) type='text/html; charset=utf-8' ;;
    *.js) type='text/javascript; charset=utf-8' ;;
    *.json) type='application/json' ;;
    *.safetensors) type='application/vnd.safetensors' ;;
    *.txt) type='text/plain; charset=utf-8' ;;
    *.yaml) type='application/yaml' ;;
    esac
    printf 'ASSET(%d, "%s", "%s.gz", "%s.br", %d, %d, %d, "%s", "W/\\"%s\\"", %s)\n' $number "$file" "$file" "$file" \
        "$(size "$file")" "$(size "$file.gz")" "$(size "$file.br")" "$type" "$(hash "$file")" $immutable >>assets.new
    number=$((number + 1))
done
mv assets.new assets.inc
rm -rf "$old"
mv "$new" "$old"
