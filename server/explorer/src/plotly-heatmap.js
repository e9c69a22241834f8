// plotly.js with heat maps alone: the ready-made bundles that have them start three times as long.
import Plotly from 'plotly.js/lib/core';
import heatmap from 'plotly.js/lib/heatmap';

Plotly.register([heatmap]);
export default Plotly;
