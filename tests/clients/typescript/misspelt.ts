// misspelt.ts must not compile. Its only error is the last key.
import type { components } from './attentiond.js';

export const body: components['schemas']['AttentionRequest'] = { Q: [[1]], K: [[1]], V: [[1]], casual: true };
